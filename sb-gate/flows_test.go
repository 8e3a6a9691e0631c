//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"sb/lib/reason"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// dialer makes dials from ports of its own.
type dialer struct {
	*flows
	port uint16
	last stack.TransportEndpointID // the last one that was taken
}

func (d *dialer) take(to string) reason.Code {
	d.port++
	id := stack.TransportEndpointID{RemotePort: d.port}
	why := d.flows.take(id, target{addr: at(to)})
	if why == "" {
		d.last = id
	}
	return why
}

// must takes a slot that there must be.
func (d *dialer) must(t *testing.T, to string) slot {
	t.Helper()
	if why := d.take(to); why != "" {
		t.Fatalf("a dial to %s: %s", to, why)
	}
	s, ok := d.dial(d.last)
	if !ok {
		t.Fatalf("the dial to %s is not known", to)
	}
	return s
}

// end ends the last dial and its flow.
func (d *dialer) end(s slot, met bool) {
	d.dialled(d.last, met)
	d.leave(s)
}

func TestFlowBudget(t *testing.T) {
	d := &dialer{flows: newFlows()}
	d.max = 3
	one := d.must(t, "198.18.1.0:1")
	d.dialled(d.last, true)
	d.must(t, "198.18.1.0:2")
	d.must(t, "198.18.1.0:3")
	if why := d.take("198.18.1.0:4"); why != reason.DescriptorsOut { // max is below what may be: it is the descriptors
		t.Errorf("one too many: %s", why)
	}
	d.leave(one)
	d.must(t, "198.18.1.0:4")
	if why := d.take("198.18.1.0:5"); why != reason.DescriptorsOut {
		t.Errorf("another one too many: %s", why)
	}
	d.max, d.tcp = maxFlows, maxFlows-1
	d.must(t, "198.18.1.0:5")
	if why := d.take("198.18.1.0:6"); why != reason.FlowBudget {
		t.Errorf("at the most there can be: %s", why)
	}
}

// TestD21Dials: dials that do not come about leave room for those to
// destinations that answer.
func TestD21Dials(t *testing.T) {
	d := &dialer{flows: newFlows()}
	good := d.must(t, "198.18.1.1:80")
	d.end(good, true)
	for i := range maxDialsNew {
		d.must(t, fmt.Sprintf("198.18.2.%d:%d", i/maxDialsEach, 80))
	}
	if why := d.take("198.18.2.0:80"); why != reason.DialBudget {
		t.Errorf("one too many to a destination: %q", why)
	}
	if why := d.take("198.18.3.0:80"); why != reason.DialBudget {
		t.Errorf("one too many to any that has not answered: %q", why)
	}
	for range maxDialsEach {
		good = d.must(t, "198.18.1.1:80")
	}
	if why := d.take("198.18.1.1:80"); why != reason.DialBudget {
		t.Errorf("one too many to the one that answers: %q", why)
	}
	d.end(good, true)
	d.must(t, "198.18.1.1:80")
	for d.take("198.18.1.1:81") == "" { // nothing is known of another port
		t.Fatal("another port is taken for the same destination")
	}
	for i := len(d.dials); i < maxDials; i++ {
		d.answered[at(fmt.Sprintf("198.18.4.%d:80", i%200))] = true
		d.must(t, fmt.Sprintf("198.18.4.%d:80", i%200))
	}
	d.answered[at("198.18.1.2:80")] = true
	if why := d.take("198.18.1.2:80"); why != reason.DialBudget {
		t.Errorf("one too many in all: %q", why)
	}
}

// The destinations that answered are remembered within a bound.
func TestAnsweredIsBounded(t *testing.T) {
	d := &dialer{flows: newFlows()}
	for i := range 2 * maxAnswered {
		d.end(d.must(t, fmt.Sprintf("198.18.1.0:%d", i+1)), true)
		d.end(d.must(t, fmt.Sprintf("198.18.2.0:%d", i+1)), false)
	}
	if len(d.answered) != maxAnswered || !d.answered[at(fmt.Sprintf("198.18.1.0:%d", 2*maxAnswered))] || len(d.each)+len(d.dials)+d.tcp+d.roomy != 0 {
		t.Errorf("%d are remembered, the last one: %v; %d %d %d %d are left", len(d.answered), d.answered[at(fmt.Sprintf("198.18.1.0:%d", 2*maxAnswered))],
			len(d.each), len(d.dials), d.tcp, d.roomy)
	}
}

// Only so many connections have large buffers, and none is opened when too much
// is held.
func TestMemoryBudget(t *testing.T) {
	d := &dialer{flows: newFlows()}
	held := uint64(0)
	d.live = func() uint64 { return held }
	var all []slot
	for i := range maxRoomy {
		all = append(all, d.must(t, fmt.Sprintf("198.18.1.%d:80", i)))
		if !all[i].roomy {
			t.Fatalf("connection %d is not roomy", i)
		}
	}
	if s := d.must(t, "198.18.2.0:80"); s.roomy {
		t.Error("one too many is roomy")
	}
	d.leave(all[0])
	if s := d.must(t, "198.18.2.0:80"); !s.roomy {
		t.Error("none is roomy after one has ended")
	}
	held = maxLive + 1
	if why := d.take("198.18.3.0:80"); why != reason.MemoryBudget {
		t.Errorf("with too much in memory: %q", why)
	}
	held = maxLive
	d.must(t, "198.18.3.0:80")
}

// With too much in memory, those connections are reset on which nothing has moved
// for longest, until it is less.
func TestRelieve(t *testing.T) {
	fs := newFlows()
	held := atomic.Uint64{}
	held.Store(maxLive)
	looked := make(chan struct{}, 1)
	fs.live = func() uint64 {
		select {
		case looked <- struct{}{}:
		default:
		}
		return held.Load()
	}
	var all []*fakeFlow
	for i := range 24 {
		f := &fakeFlow{at: int64(100 + i)}
		fs.add(f)
		all = append(all, f)
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() { fs.relieve(done); close(ended) }()
	<-looked
	<-looked
	if n := cutOf(all); n != 0 {
		t.Errorf("%d are reset at the bound", n)
	}
	held.Store(maxLive + 1)
	<-looked
	<-looked
	<-looked
	held.Store(maxLive)
	close(done)
	<-ended
	for i, f := range all {
		if was := len(f.ended) > 0; was != (i < cutOf(all)) || was && f.ended[0] != reason.MemoryBudget {
			t.Errorf("flow %d: %v", i, f.ended)
		}
	}
	if n := cutOf(all); n < 3 || n == len(all) {
		t.Errorf("%d are reset", n)
	}
}

func cutOf(all []*fakeFlow) (n int) {
	for _, f := range all {
		n += min(1, len(f.ended))
	}
	return n
}

// fakeFlow is one that is or is not allowed, and quiet.
type fakeFlow struct {
	allowed, idle bool
	ended         []reason.Code
	at            int64
}

func (f *fakeFlow) moved() int64 { return f.at }

func (f *fakeFlow) reset(why reason.Code) { f.ended = append(f.ended, why) }
func (f *fakeFlow) stands() bool          { return f.allowed }
func (f *fakeFlow) quiet(time.Time) bool  { return f.idle }

func TestFlowsEnd(t *testing.T) {
	fs := newFlows()
	good, denied, idle, gone := &fakeFlow{allowed: true}, &fakeFlow{}, &fakeFlow{allowed: true, idle: true}, &fakeFlow{idle: true}
	for _, f := range []*fakeFlow{good, denied, idle, gone} {
		fs.add(f)
	}
	fs.remove(gone)
	fs.recheck()
	fs.sweepAt(time.Now())
	if len(good.ended)+len(gone.ended) != 0 || len(denied.ended) != 1 || denied.ended[0] != reason.PolicyChanged || len(idle.ended) != 1 || idle.ended[0] != reason.IdleTimeout {
		t.Errorf("%v %v %v %v", good.ended, denied.ended, idle.ended, gone.ended)
	}
	if why := fs.takeOne(&fs.udp, 1, reason.FlowBudget); why != "" {
		t.Errorf("%s", why)
	}
	if why := fs.takeOne(&fs.udp, 1, reason.FlowBudget); why != reason.FlowBudget {
		t.Errorf("one too many: %q", why)
	}
	fs.close()
	if fs.add(good) {
		t.Error("a flow begins after the end")
	}
	for _, why := range []reason.Code{fs.take(stack.TransportEndpointID{}, target{}), fs.takeOne(&fs.pings, 9, reason.PingBudget)} {
		if why != reason.GateEnd {
			t.Errorf("after the end: %q", why)
		}
	}
	select {
	case <-fs.idle:
		t.Error("idle, and a flow is open")
	default:
	}
	fs.free(&fs.udp)
	select {
	case <-fs.idle:
	default:
		t.Error("nothing is open, and it is not idle")
	}
}

// Idle times: of a flow that moved a byte now, a TCP one lasts two hours and more
// (RFC 5382, REQ-5), a UDP one no less than two minutes less a half.
func TestQuiet(t *testing.T) {
	var f flow
	var u udpFlow
	f.touch()
	u.touch()
	now := time.Now()
	for _, c := range []struct {
		after    time.Duration
		tcp, udp bool
	}{{0, false, false}, {89 * time.Second, false, false}, {91 * time.Second, false, true}, {2*time.Hour + 3*time.Minute, false, true}, {2*time.Hour + 5*time.Minute, true, true}} {
		if f.quiet(now.Add(c.after)) != c.tcp || u.quiet(now.Add(c.after)) != c.udp {
			t.Errorf("after %v: tcp %v, udp %v", c.after, f.quiet(now.Add(c.after)), u.quiet(now.Add(c.after)))
		}
	}
}

func TestPinger(t *testing.T) {
	p := &pinger{last: map[netip.Addr]time.Time{}}
	now, a := time.Now(), netip.MustParseAddr("198.18.1.0")
	if !p.take(a, now) || p.take(a, now.Add(pingEvery-1)) || !p.take(a, now.Add(pingEvery)) {
		t.Error("not once a second")
	}
	now = now.Add(time.Minute)
	for range maxPinged {
		if a = a.Next(); !p.take(a, now) {
			t.Fatalf("%s may not be pinged", a)
		}
	}
	if p.take(a.Next(), now) {
		t.Error("more hosts than are remembered")
	}
	if !p.take(a.Next(), now.Add(pingEvery)) || len(p.last) != 1 {
		t.Errorf("%d hosts are remembered a second later", len(p.last))
	}
}
