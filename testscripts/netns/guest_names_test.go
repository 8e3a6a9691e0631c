package netns

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/testscripts/world"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// gateway is what the guest's resolver asks.
const gateway = "198.18.0.1:53"

// dial opens a connection in the guest, by its kernel. Only the socket is made
// there: what comes of it can be used anywhere.
func (l *lab) dial(network, addr string) (c net.Conn, err error) {
	done := make(chan struct{})
	inGuests() <- func() {
		defer close(done)
		var ns *os.File
		if ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", l.tap.Process.Pid)); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			c, err = (&net.Dialer{Timeout: 10 * time.Second, FallbackDelay: -1}).DialContext(context.Background(), network, addr)
		}
	}
	<-done
	return c, err
}

// inGuests is where to send what is to be done on the one thread that enters the
// namespaces of guests. It never ends: a child of its would be killed with it.
var inGuests = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// ask sends a DNS message to an address in the guest's way and returns the answer.
func (l *lab) ask(msg []byte) ([]byte, error) {
	c, err := l.dial("udp", gateway)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	return buf[:n], err
}

// lookup is the address that the guest gets for a name; the zero Addr if none.
func (l *lab) lookup(name string) (netip.Addr, dnsmessage.RCode, error) {
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	msg, err := q.Pack()
	if err != nil {
		return netip.Addr{}, 0, err
	}
	b, err := l.ask(msg)
	if err != nil {
		return netip.Addr{}, 0, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		return netip.Addr{}, 0, err
	}
	for _, r := range m.Answers {
		if a, ok := r.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(a.A), m.RCode, nil
		}
	}
	return netip.Addr{}, m.RCode, nil
}

// dialName opens a connection of the guest's to a name, which must have an address.
func (l *lab) dialName(name string, port int) (net.Conn, error) {
	a, code, err := l.lookup(name)
	if err != nil || !a.IsValid() {
		return nil, fmt.Errorf("look up %s: %v %v %v", name, a, code, err)
	}
	return l.dial("tcp", netip.AddrPortFrom(a, uint16(port)).String())
}

// saysTo sends text over a connection to a name and returns what comes back, or how
// it went wrong.
func (l *lab) saysTo(name string, port int, text string) string {
	c, err := l.dialName(name, port)
	if err != nil {
		return "failed: " + err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, text)
	b, err := io.ReadAll(c)
	if len(b) == 0 && err != nil {
		return "failed: " + err.Error()
	}
	return string(b)
}

func get(host string) string {
	return "GET /x HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
}

// text is a line of the log without its time and words.
func text(x audit.Line) string {
	return fmt.Sprintf("%s %s %s %s %s", x.Verdict, x.Gate, cmp.Or(x.Name, "-"), cmp.Or(x.Address, "-"), x.Reason)
}

// hasLine waits for a line of the log that matches.
func (l *lab) hasLine(t testing.TB, pattern string) {
	t.Helper()
	re := regexp.MustCompile("^" + pattern + "$")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for _, x := range l.log() {
			if re.MatchString(text(x)) {
				return
			}
		}
		if time.Now().After(end) {
			t.Errorf("the log has no %s in\n%s", pattern, l.whole())
			return
		}
	}
}

// whole is the log in words.
func (l *lab) whole() string {
	var b strings.Builder
	for _, x := range l.log() {
		b.WriteString(x.String() + "\n")
	}
	return b.String()
}

// seen is what the world's servers have seen.
func seen(t testing.TB) world.Seen {
	t.Helper()
	s, err := world.Look()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// soon fails a test if what it names took as long as somebody waits for; the start
// of a program on a busy machine may be most of it.
func soon(t testing.TB, what string, began time.Time) {
	t.Helper()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("%s: it took %v", what, took)
	}
}
