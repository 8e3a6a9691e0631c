//go:build linux

package main

import (
	"net/netip"
	"testing"
	"time"

	"sb/lib/reason"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// The rules are replaced while a dial is under way: what they allow no more is
// not let through by what they said before.
func TestRulesReplacedDuringDial(t *testing.T) {
	s := start(t, "a.example:5432", "b.example")
	slow, free := s.fullServer("a.example", 5432)
	s.site("b.example", 443, drain)
	h := s.handle("a.example")
	dialled := make(chan error, 1)
	go func() {
		c, err := s.guest.dial(netip.AddrPortFrom(h, 5432))
		if err == nil {
			c.Close()
		}
		dialled <- err
	}()
	within(t, 5*time.Second, "the gate dials", func() bool { return pending(slow.at) })
	s.rules(1, "b.example")
	free()
	if err := <-dialled; err == nil {
		t.Error("the connection was let through")
	}
	s.has("dial tcp a.example " + slow.at.String() + " policy-changed -")
	s.has("close tcp a.example " + slow.at.String() + " policy-changed - up=0")
	s.hello("b.example")
}

// pending says whether a connection to an address waits for its answer.
func pending(at netip.AddrPort) bool {
	const synSent = "02"
	return tcpTable(at, synSent)
}

// TestD21DialBudget: dials that wait do not hold up others, and are bounded for
// each destination; each gives its slot back.
func TestD21DialBudget(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example", "b.example")
	dead, _ := s.fullServer("a.example", 443)
	s.site("b.example", 443, drain)
	h := s.handle("a.example")
	results := make(chan error, 2*maxDialsEach)
	for range maxDialsEach {
		go func() {
			_, err := s.guest.dial(netip.AddrPortFrom(h, 443))
			results <- err
		}()
	}
	within(t, 5*time.Second, "they wait", func() bool { return s.dns.looked.Load() == maxDialsEach })
	began := time.Now()
	s.refusedAt(netip.AddrPortFrom(h, 443))
	s.has("deny tcp a.example 198.18.1.0:443 dial-budget -")
	s.hello("b.example")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("others were held up for %v", took)
	}
	for range maxDialsEach {
		if err := <-results; err == nil {
			t.Error("a dial to a server that does not answer was opened")
		}
	}
	s.hasN(maxDialsEach, "dial tcp a.example "+dead.at.String()+" connect-timeout -")
	// All slots are back: none of these is refused for the budget.
	s.dns.fail("a.example", reason.NoSuchName)
	for range maxDialsEach + 1 {
		s.refusedAt(netip.AddrPortFrom(h, 443))
	}
	s.hasN(1, "deny tcp a.example * dial-budget -")
}

// A guest that begins handshakes and leaves them does not take the dials of
// others, nor its own for ever, and does not hold up the gate's end.
func TestD21HalfOpen(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example", "b.example")
	w := s.site("a.example", 443, drain)
	s.site("b.example", 443, drain)
	h := s.handle("a.example")
	s.hello("a.example")
	answered := s.guest.dropTCP(1000, 2000) // its stack knows nothing of these
	begin := func(port uint16) {
		for i := range uint16(maxDialsEach) {
			s.send(s.syn(port+i, netip.AddrPortFrom(h, 443)))
		}
	}
	begin(1000)
	within(t, 5*time.Second, "the gate answers", func() bool { return answered() == maxDialsEach })
	s.refused("a.example", 443)
	s.has("deny tcp a.example 198.18.1.0:443 dial-budget -")
	s.hello("b.example")
	s.hasN(maxDialsEach, "close tcp a.example "+w.at.String()+" reset - up=0")
	s.hello("a.example")
	begin(1500)
	within(t, 5*time.Second, "the gate answers", func() bool { return answered() == 2*maxDialsEach })
	began := time.Now()
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > endTime-time.Second {
		t.Errorf("the end took %v", took)
	}
	s.hasN(maxDialsEach, "close tcp a.example "+w.at.String()+" gate-end - up=0")
}

// A flow that is cut while the guest's handshake is under way is over for the
// guest, too, when it completes that.
func TestCutDuringHandshake(t *testing.T) {
	s := start(t, "a.example:7/raw")
	w := s.site("a.example", 7, echo)
	to := netip.AddrPortFrom(s.handle("a.example"), 7)
	frames := s.guest.tap()
	s.guest.dropTCP(1000, 1000) // its stack knows nothing of it
	s.send(s.syn(1000, to))
	seq := s.segment(frames, 1000, header.TCPFlagSyn|header.TCPFlagAck)
	s.rules(1)
	s.has("close tcp a.example " + w.at.String() + " policy-changed - up=0")
	s.send(s.tcp(1000, to, header.TCPFlagAck, 8, seq+1))
	s.segment(frames, 1000, header.TCPFlagRst)
}

// segment waits for one with some flags to a port of the guest's and returns its
// sequence number.
func (s *sandbox) segment(frames <-chan []byte, port uint16, flags header.TCPFlags) uint32 {
	s.t.Helper()
	for deadline := time.After(5 * time.Second); ; {
		select {
		case f := <-frames:
			if len(f) < 54 || f[12] != 8 || f[13] != 0 || f[23] != 6 {
				continue
			}
			if seg := header.TCP(f[34:]); seg.DestinationPort() == port && seg.Flags()&flags == flags {
				return seg.SequenceNumber()
			}
		case <-deadline:
			s.t.Fatalf("no segment with the flags %v came", flags)
		}
	}
}
