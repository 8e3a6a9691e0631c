//go:build linux

package main

import (
	"net/netip"
	"testing"
	"time"

	"sb/lib/reason"
)

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestFlowSlots(t *testing.T) {
	fs := newFlows()
	fs.max = 40
	for i := range 40 {
		addr := at("198.18.1.0:1")
		if i >= maxDialsEach {
			addr = netip.AddrPortFrom(addr.Addr(), uint16(100+i))
		}
		if why := fs.take(addr); why != "" {
			t.Fatalf("slot %d: %s", i, why)
		}
	}
	if why := fs.take(at("198.18.1.0:9")); why != reason.DescriptorsOut { // max is below what may be: it is the descriptors
		t.Errorf("one too many: %s", why)
	}
	fs.dialled(at("198.18.1.0:1"))
	if why := fs.take(at("198.18.1.0:9")); why != reason.DescriptorsOut {
		t.Errorf("after a dial, whose flow goes on: %s", why)
	}
	fs.free(&fs.tcp)
	if why := fs.take(at("198.18.1.0:1")); why != "" {
		t.Errorf("after a flow ended: %s", why)
	}
	if why := fs.take(at("198.18.1.0:1")); why == "" {
		t.Error("another one")
	}
	fs.max = maxFlows
	fs.tcp = maxFlows
	if why := fs.take(at("198.18.1.0:9")); why != reason.FlowBudget {
		t.Errorf("at the most there can be: %s", why)
	}
	fs.tcp = 1
	if why := fs.take(at("198.18.1.0:1")); why != reason.DialBudget {
		t.Errorf("one dial too many to a destination: %s", why)
	}
	if why := fs.take(at("198.18.1.0:9")); why != "" {
		t.Errorf("another destination: %s", why)
	}
	fs.dialing = maxDials
	if why := fs.take(at("198.18.1.0:10")); why != reason.DialBudget {
		t.Errorf("one dial too many: %s", why)
	}
}

// fakeFlow is one that is or is not allowed, and quiet.
type fakeFlow struct {
	allowed, idle bool
	ended         []reason.Code
}

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
	for _, why := range []reason.Code{fs.take(at("198.18.1.0:1")), fs.takeOne(&fs.pings, 9, reason.PingBudget)} {
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
