//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/say"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// process is sb-dns as it serves, on real wires; the test is the gate and sb-run.
type process struct {
	t     *testing.T
	s     *server
	file  *os.File
	conn  *wire.Conn
	ctl   *ctl.Conn
	leash *os.File
	done  chan error
}

func startServer(t *testing.T, s *server) *process {
	t.Helper()
	p := &process{t: t, s: s, done: make(chan error, 1)}
	before := held()
	var w wires
	var control, ready *os.File
	w.dns, p.file = p.pair("dns")
	w.ctl, control = p.pair("ctl")
	w.ready, ready = p.pair("ready")
	w.leash, p.leash = p.pair("leash")
	var err error
	if p.ctl, err = ctl.NewConn(control); err != nil {
		t.Fatal(err)
	}
	p.conn = wire.NewConn(p.file)
	go func() { p.done <- s.serve(w) }()
	if err := fd.WaitReady(ready, say.Version); err != nil {
		t.Fatal(err)
	}
	ready.Close()
	t.Cleanup(func() {
		p.leash.Close()
		p.file.Close()
		p.ctl.Close()
		within(t, "nothing is left", func() bool { now := held(); return now[0] <= before[0] && now[1] <= before[1] })
	})
	return p
}

// held is how many goroutines and descriptors there are.
func held() [2]int {
	names, _ := os.ReadDir("/proc/self/fd")
	return [2]int{runtime.NumGoroutine(), len(names)}
}

// pair makes a wire, each end taken as sb-dns takes what it inherits.
func (p *process) pair(name string) (ours, far *os.File) {
	p.t.Helper()
	a, b, err := fd.Pair(name, fd.Stream)
	if err != nil {
		p.t.Fatal(err)
	}
	ends := [2]*os.File{}
	for i, f := range []*os.File{a, b} {
		n, err := unix.Dup(int(f.Fd()))
		if err != nil {
			p.t.Fatal(err)
		}
		f.Close()
		if ends[i], err = fd.Take(name, n, fd.Stream); err != nil {
			p.t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// greet is what a gate does first; it returns the handles that stand.
func (p *process) greet(handles ...wire.Handle) (got []wire.Handle) {
	p.t.Helper()
	err := p.conn.Greet(func() []wire.Handle { return handles }, func(h wire.Handle) error { got = append(got, h); return nil })
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// next is the next record, of the kind that is expected.
func next[T any](p *process) T {
	p.t.Helper()
	p.file.SetReadDeadline(time.Now().Add(10 * time.Second))
	rec, err := p.conn.Next()
	if err != nil {
		p.t.Fatal(err)
	}
	r, ok := rec.(T)
	if !ok {
		p.t.Fatalf("the next record is %#v", rec)
	}
	return r
}

func (p *process) ask(id uint32, query string) wire.Answer {
	p.t.Helper()
	q, err := assemble(query)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.conn.Send(wire.Query{ID: id, Message: q}); err != nil {
		p.t.Fatal(err)
	}
	return next[wire.Answer](p)
}

func (p *process) wait() error {
	p.t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(10 * time.Second):
		p.t.Fatal("it does not end")
	}
	return nil
}

// TestServe: questions and resolutions over the wire, each with what it cost.
func TestServe(t *testing.T) {
	ns := newNameserver(t, byType([]dnsmessage.ResourceBody{a4(1), a4(2)}, nil))
	s := testServer(t, "a.example", "*.w.example")
	s.upstream.dial = ns.dial
	p := startServer(t, s)
	if got := p.greet(); got != nil {
		t.Errorf("handles at the start: %v", got)
	}
	first := netip.MustParseAddr("198.18.1.0")
	if a := p.ask(1, "Q @a.example A IN"); a.ID != 1 || !a.Allow || a.Handle != first || a.TTL != ttl || a.Rule != "a.example" || a.Type != "a" {
		t.Errorf("%+v", a)
	}
	if a := p.ask(2, "Q @denied.example A IN"); a.ID != 2 || a.Allow || a.Handle.IsValid() || a.Reason != reason.NoAllowRule {
		t.Errorf("%+v", a)
	}
	if a := p.ask(3, "junk"[:0]); a.ID != 3 || a.Allow || a.Message != nil || a.Reason != reason.DNSMalformed {
		t.Errorf("%+v", a)
	}
	if ns.total() != 0 {
		t.Errorf("a question alone asked the nameserver %d times", ns.total())
	}
	p.conn.Send(wire.Resolve{ID: 9, Name: "a.example"})
	r := &reports{}
	for range 2 {
		r.add(next[wire.Exchange](p))
	}
	r.agrees(t, ns, 0)
	got := next[wire.Resolved](p)
	if got.ID != 9 || got.Reason != reason.AllowRule || got.TTL != 30 || len(got.Addrs) != 2 || got.Addrs[0].Unmap() != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("%+v", got)
	}
	p.conn.Send(wire.Resolve{ID: 10, Name: "not a name"})
	if got := next[wire.Resolved](p); got.ID != 10 || got.Reason != reason.BadName || got.Addrs != nil {
		t.Errorf("%+v", got)
	}
}

// TestReplaced: a gate that takes the place of another learns the handles; an
// sb-dns that does, too; each goes on giving out new ones.
func TestReplaced(t *testing.T) {
	p := startServer(t, testServer(t, "*.w.example"))
	p.greet()
	for i := range 3 {
		p.ask(uint32(i), fmt.Sprintf("Q @x%d.w.example A IN", i))
	}
	p.file.Write([]byte("q 7 400\nhalf of it")) // the old gate dies in the middle of a record
	p.file.Write([]byte(strings.Repeat("\x00", 400-len("half of it"))))
	next[wire.Answer](p)
	handles := p.greet()
	if len(handles) != 3 {
		t.Fatalf("the new gate learns %v", handles)
	}
	if a := p.ask(9, "Q @x1.w.example A IN"); a.Handle != netip.MustParseAddr("198.18.1.1") {
		t.Errorf("%+v", a)
	}
	again := startServer(t, testServer(t, "*.w.example"))
	again.greeted(handles)
	for i := range 3 {
		if a := again.ask(uint32(i), fmt.Sprintf("Q @x%d.w.example A IN", i)); a.Handle != handleOf(handles, fmt.Sprintf("x%d.w.example", i)) {
			t.Errorf("x%d: %+v", i, a)
		}
	}
	if a := again.ask(9, "Q @new.w.example A IN"); a.Handle != netip.MustParseAddr("198.18.1.3") {
		t.Errorf("a new name: %+v", a)
	}
}

// greeted answers the hello of a server that starts, as a gate that stands does.
func (p *process) greeted(handles []wire.Handle) {
	p.t.Helper()
	hello := next[wire.Hello](p)
	if err := p.conn.SendTable(hello.Nonce, handles); err != nil {
		p.t.Fatal(err)
	}
}

func handleOf(handles []wire.Handle, name string) netip.Addr {
	for _, h := range handles {
		if h.Name == name {
			return h.Addr
		}
	}
	return netip.Addr{}
}

// A table that cannot be is a fault: the address of one name for another, one
// that is none, a name that is none.
func TestBadTable(t *testing.T) {
	a := netip.MustParseAddr("198.18.1.0")
	for _, handles := range [][]wire.Handle{
		{{Name: "a.example", Addr: a}, {Name: "b.example", Addr: a}},
		{{Name: "a.example", Addr: a}, {Name: "a.example", Addr: a.Next()}},
		{{Name: "a.example", Addr: netip.MustParseAddr("198.18.0.9")}},
		{{Name: "a.example", Addr: netip.MustParseAddr("192.0.2.1")}},
		{{Name: "a..example", Addr: a}},
	} {
		p := startServer(t, testServer(t, "a.example"))
		p.greeted(handles)
		if err := p.wait(); err == nil || !strings.Contains(err.Error(), "handle") {
			t.Errorf("%v: %v", handles, err)
		}
	}
	p := startServer(t, testServer(t, "a.example"))
	p.greeted([]wire.Handle{{Name: "a.example", Addr: a}, {Name: "a.example", Addr: a}})
	if got := p.ask(1, "Q @a.example A IN"); got.Handle != a {
		t.Errorf("a handle that is told twice: %+v", got)
	}
}

// TestControl: the rules are replaced, or stay as they were where they are not
// understood.
func TestControl(t *testing.T) {
	p := startServer(t, testServer(t, "a.example"))
	p.greet()
	tell := func(m ctl.Message, files ...*os.File) ctl.Message {
		t.Helper()
		if err := p.ctl.Send(m, files...); err != nil {
			t.Fatal(err)
		}
		a, _, err := p.ctl.Receive()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if a := tell(ctl.Message{{Key: "ask", Value: "alive"}}, null); a.Get("ok") != "alive" {
		t.Errorf("%v", a)
	}
	for _, m := range []ctl.Message{
		{{Key: "ask", Value: "rules"}, {Key: "generation", Value: "1"}, {Key: "allow", Value: "not a rule"}},
		{{Key: "ask", Value: "rules"}, {Key: "allow", Value: "b.example"}},
		{{Key: "ask", Value: "totals"}},
	} {
		if a := tell(m); a.Get("error") == "" {
			t.Errorf("%v: %v", m, a)
		}
	}
	if a := p.ask(1, "Q @a.example A IN"); !a.Allow {
		t.Errorf("%+v", a)
	}
	a := tell(ctl.Message{{Key: "ask", Value: "rules"}, {Key: "generation", Value: "2"}, {Key: "allow", Value: "*.example"}, {Key: "deny", Value: "a.example"}})
	if !reflect.DeepEqual(a, ctl.Message{{Key: "ok", Value: "rules"}, {Key: "generation", Value: "2"}}) {
		t.Errorf("%v", a)
	}
	if a := p.ask(2, "Q @a.example A IN"); a.Allow || a.Reason != reason.DenyRule {
		t.Errorf("%+v", a)
	}
	if a := p.ask(3, "Q @b.example A IN"); !a.Allow {
		t.Errorf("%+v", a)
	}
}

// TestEnds: the leash, a signal, and the end of either wire end it, without an
// error; a wire that breaks off, or says what no gate says, is a fault.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		how string
		end func(p *process)
		bad bool
	}{
		{"leash", func(p *process) { p.leash.Close() }, false},
		{"SIGTERM", func(p *process) { syscall.Kill(os.Getpid(), syscall.SIGTERM) }, false},
		{"dns", func(p *process) { p.file.Close() }, false},
		{"ctl", func(p *process) { p.ctl.Close() }, false},
		{"broken record", func(p *process) { p.file.Write([]byte("q 1 9\nabc")); p.file.Close() }, true},
		{"not a gate's record", func(p *process) { p.conn.Send(wire.Resolved{}) }, true},
	} {
		p := startServer(t, testServer(t))
		p.greet()
		c.end(p)
		if err := p.wait(); (err != nil) != c.bad {
			t.Errorf("%s: it ended: %v", c.how, err)
		}
	}
	p := startServer(t, testServer(t))
	p.file.Close() // before it met a gate
	if err := p.wait(); err != nil {
		t.Errorf("unmet: it ended: %v", err)
	}
}

// TestHandles: one address one name, until there are no more of either.
func TestHandles(t *testing.T) {
	net := manifest.Network{Pool: netip.MustParsePrefix("198.18.0.0/20")}
	h := newHandles(net)
	seen := map[netip.Addr]bool{}
	n := 0
	for ; ; n++ {
		a, ok := h.of(nameOf(t, fmt.Sprintf("x%d.example", n)))
		if !ok {
			break
		}
		if seen[a] || !net.IsHandle(a) {
			t.Fatalf("name %d has %s", n, a)
		}
		seen[a] = true
	}
	if n != 4096-256 {
		t.Errorf("%d handles in a /20", n)
	}
	if a, ok := h.of(nameOf(t, "x7.example")); !ok || a != netip.MustParseAddr("198.18.1.7") {
		t.Errorf("a name that has one: %s, %v", a, ok)
	}
	if _, ok := h.of(nameOf(t, "another.example")); ok {
		t.Error("one too many")
	}
	h = newHandles(manifest.Network{Pool: netip.MustParsePrefix(manifest.DefaultPool)})
	for n = 0; ; n++ {
		if _, ok := h.of(nameOf(t, fmt.Sprintf("x%d.example", n))); !ok {
			break
		}
	}
	if n != maxHandles {
		t.Errorf("%d handles", n)
	}
}

// At the cap a new name is refused, with its reason; those that have a handle
// keep it.
func TestHandleBudget(t *testing.T) {
	s := testServer(t, "*.w.example")
	expect(t, s, "Q @first.w.example A IN", "noerror allow allow-rule first.w.example a 198.18.1.0")
	for i := range maxHandles - 1 {
		s.handles.of(nameOf(t, fmt.Sprintf("x%d.w.example", i)))
	}
	expect(t, s, "QE @one.more.w.example A IN OPT:1232", "nxdomain deny handle-budget one.more.w.example a ede:handle-budget")
	expect(t, s, "Q @first.w.example A IN", "noerror allow allow-rule first.w.example a 198.18.1.0")
	expect(t, s, "Q @one.more.w.example AAAA IN", "noerror allow allow-rule one.more.w.example aaaa")
}
