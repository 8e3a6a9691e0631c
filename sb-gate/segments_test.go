//go:build linux

package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// peer is a connection of the guest's that is made by hand, segment by segment,
// past its own stack.
type peer struct {
	s      *sandbox
	frames <-chan []byte
	port   uint16
	to     netip.AddrPort
	window uint16
	seq    uint32 // of the next byte it sends
	heard  []byte // what came, in order
	ack    uint32 // of the next byte it expects
	sizes  []int  // of the segments with data that came
	reset  bool
}

// segment is one of the peer's, at an offset from where it is.
func (p *peer) segment(flags header.TCPFlags, off int, urgent uint16, options, data []byte) []byte {
	seg := header.TCP(make([]byte, header.TCPMinimumSize+len(options)+len(data)))
	seg.Encode(&header.TCPFields{SrcPort: p.port, DstPort: p.to.Port(), SeqNum: p.seq + uint32(off), AckNum: p.ack, DataOffset: uint8(header.TCPMinimumSize + len(options)),
		Flags: flags, WindowSize: p.window, UrgentPointer: urgent})
	copy(seg[header.TCPMinimumSize:], options)
	copy(seg[header.TCPMinimumSize+len(options):], data)
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, tcpip.AddrFrom4(p.s.guest.net.Guest().As4()), tcpip.AddrFrom4(p.to.Addr().As4()), uint16(len(seg)))
	seg.SetChecksum(^header.TCP(seg).CalculateChecksum(sum))
	return ether(0x0800, p.s.packet(6, p.to.Addr(), seg))
}

const (
	synFlag, ackFlag, pushFlag = header.TCPFlagSyn, header.TCPFlagAck, header.TCPFlagPsh
	urgentFlag, resetFlag      = header.TCPFlagUrg, header.TCPFlagRst
)

// open makes a connection, with options of its SYN and data in it.
func (s *sandbox) open(frames <-chan []byte, port uint16, to netip.AddrPort, options, data []byte) *peer {
	s.t.Helper()
	p := &peer{s: s, frames: frames, port: port, to: to, window: 65535, seq: 1000}
	s.send(p.segment(synFlag, 0, 0, options, data))
	p.seq++
	p.ack = s.segment(frames, port, synFlag|ackFlag) + 1
	s.send(p.segment(ackFlag, 0, 0, nil, nil))
	return p
}

// hears takes what comes until there are n bytes, or nothing came for a while,
// and acknowledges it.
func (p *peer) hears(n int, wait time.Duration) string {
	for end := time.After(wait); len(p.heard) < n && !p.reset; {
		select {
		case f := <-p.frames:
			if len(f) < 54 || f[12] != 8 || f[13] != 0 || f[23] != 6 {
				continue
			}
			ip := header.IPv4(f[14:])
			seg := header.TCP(ip.Payload())
			if seg.DestinationPort() != p.port {
				continue
			}
			p.reset = p.reset || seg.Flags()&resetFlag != 0
			data := seg.Payload()
			if len(data) == 0 {
				continue
			}
			p.sizes = append(p.sizes, len(data))
			if seg.SequenceNumber() == p.ack {
				p.heard = append(p.heard, data...)
				p.ack += uint32(len(data))
			}
			p.s.send(p.segment(ackFlag, 0, 0, nil, nil))
		case <-end:
			return string(p.heard)
		}
	}
	return string(p.heard)
}

// says sends data and moves on behind it.
func (p *peer) says(data string) {
	p.s.send(p.segment(ackFlag|pushFlag, 0, 0, nil, []byte(data)))
	p.seq += uint32(len(data))
}

// TestD12Segments: what no client does with TCP disturbs nobody but who does it,
// and a server sees nothing of it: its connection is the gate's own.
func TestD12Segments(t *testing.T) {
	s := start(t, "raw.example:7/raw", "a.example")
	s.inexact = true
	s.site("raw.example", 7, echo)
	s.web("a.example", 80)
	to := netip.AddrPortFrom(s.handle("raw.example"), 7)
	frames := s.guest.tap()
	s.guest.dropTCP(1000, 3000)
	long := strings.Repeat("0123456789", 500)
	port := uint16(1000)
	open := func(options, data string) *peer {
		port++
		return s.open(frames, port, to, []byte(options), []byte(data))
	}
	wants := func(what string, p *peer, want string) {
		t.Helper()
		if got := p.hears(len(want), 10*time.Second); got != want {
			t.Errorf("%s: %.40q (%d bytes), want %.40q", what, got, len(got), want)
		}
		s.send(p.segment(resetFlag|ackFlag, 0, 0, nil, nil))
	}

	p := open("", "early")
	p.says("late")
	wants("data in the SYN is no data", p, "late")

	p = open("\x02\x04\x00\x01", "") // an MSS of 1
	p.says(long[:1400])
	wants("an MSS of 1", p, long[:1400])
	if n := len(p.sizes); n > 1400/20 {
		t.Errorf("1400 bytes came in %d segments for an MSS of 1", n)
	}

	p = open("\x02\x04\xff\xff\x03\x03\x0e\x00", "") // the largest MSS, a window scale of 14
	for at := 0; at < len(long); at += 1000 {
		p.says(long[at : at+1000])
	}
	wants("the largest MSS", p, long)
	for _, n := range p.sizes {
		if n > 1460 {
			t.Errorf("a segment of %d bytes", n)
		}
	}

	p = open("", "")
	p.window = 0
	p.says("closed")
	if got := p.hears(6, 300*time.Millisecond); len(got) > 1 { // a probe may be of a byte
		t.Errorf("into a window of 0 came %q", got)
	}
	s.passesHTTP("a.example", 80)
	p.window = 65535
	s.send(p.segment(ackFlag, 0, 0, nil, nil))
	wants("a window that was closed for a while", p, "closed")

	p = open("", "")
	s.send(p.segment(ackFlag|urgentFlag, 0, 3, nil, []byte("urgent")))
	p.seq += 6
	wants("urgent data is data", p, "urgent")

	p = open("", "")
	s.send(p.segment(resetFlag, 1<<30, 0, nil, nil))
	s.send(p.segment(synFlag, 1<<30, 0, nil, nil))
	s.send(p.segment(ackFlag, 1<<30, 0, nil, []byte("elsewhere")))
	p.says("alive")
	wants("a reset and data outside of the window", p, "alive")

	p = open("", "")
	for i := len("backwards") - 1; i >= 0; i-- {
		s.send(p.segment(ackFlag, i, 0, nil, []byte("backwards")[i:i+1]))
	}
	p.seq += 9
	wants("single bytes in reverse order", p, "backwards")

	p = open(strings.Repeat("\x01", 40), "")
	p.says("options")
	wants("forty bytes of options", p, "options")
	s.passesHTTP("a.example", 80)
}

// TestD12C1Overlap: two versions of a request, one over the other. The server sees
// the one that was judged.
func TestD12C1Overlap(t *testing.T) {
	s := start(t, "a.example")
	s.inexact = true
	var seen keeper
	s.site("a.example", 80, seen.handle)
	to := netip.AddrPortFrom(s.handle("a.example"), 80)
	frames := s.guest.tap()
	s.guest.dropTCP(1000, 3000)
	good, evil := []byte(get("a.example")), []byte(get("z.example"))
	const host = 22 // where the names begin
	for i, parts := range []struct {
		off  int
		data []byte
	}{{host, evil[host:]}, {host, good[host:]}} {
		other := good
		if i == 1 {
			other = evil
		}
		p := s.open(frames, uint16(1000+i), to, nil, nil)
		s.send(p.segment(ackFlag, parts.off, 0, nil, parts.data)) // behind a hole
		s.send(p.segment(ackFlag|pushFlag, 0, 0, nil, other))     // which this fills, and more
		p.seq += uint32(len(other))
		p.hears(1, 300*time.Millisecond)
		s.send(p.segment(resetFlag|ackFlag, 0, 0, nil, nil))
	}
	for _, got := range seen.all(t, 2) {
		if got != "" && got != string(good) || bytes.Contains([]byte(got), []byte("z.example")) {
			t.Errorf("the server got %q", got)
		}
	}
	s.says("a.example", 80, get("a.example"))
	if got := seen.all(t, 3)[2]; got != string(good) {
		t.Errorf("the control: %q", got)
	}
}
