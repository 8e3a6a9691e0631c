//go:build linux

package main

import (
	"encoding/binary"
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/sb-gate/frame"
)

// frames is how many hostile frames TestD5D18Hostile sends.
var frames = flag.Int("frames", 100_000, "hostile frames to send, a multiple of 100,000 to measure with")

// hostile makes frames as an enemy in the guest would.
type hostile struct {
	r      *rand.Rand
	s      *sandbox
	known  [][]byte // the golden frames, to be changed
	places []netip.Addr
	made   int
}

func newHostile(s *sandbox, places ...netip.Addr) *hostile {
	h := &hostile{r: rand.New(rand.NewPCG(5, 18)), s: s, places: places}
	text, err := os.ReadFile("frame/testdata/frames.txt")
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if col := strings.Split(strings.TrimSpace(line), " | "); len(col) == 4 && line[0] != '#' {
			digits, zeros, _ := strings.Cut(col[3], "+")
			b, err := hex.DecodeString(digits)
			if err != nil {
				s.t.Fatal(err)
			}
			n, _ := strconv.Atoi(zeros)
			h.known = append(h.known, append(b, make([]byte, min(n, 1600))...))
		}
	}
	return h
}

// next is a frame, never empty: the kinds take turns.
func (h *hostile) next() []byte {
	h.made++
	n, r := h.made/8, h.r
	switch h.made % 8 {
	case 0, 1:
		return h.changed()
	case 2: // every EtherType
		return ether(uint16(n), h.s.packet(6, h.place(), make([]byte, 40)))
	case 3: // every protocol
		return ether(frame.EtherIPv4, h.s.packet(byte(n), h.place(), h.noise(8+r.IntN(80))))
	case 4: // every combination of flags, with options of noise
		return h.segment(byte(n))
	case 5:
		return ether(frame.EtherIPv4, h.s.packet(17, h.place(), h.datagram()))
	case 6: // of ICMP, mostly what is refused
		return ether(frame.EtherIPv4, h.s.packet(1, h.place(), append([]byte{byte(n), byte(n >> 8)}, h.noise(6+r.IntN(60))...)))
	}
	b := h.noise(1 + r.IntN(1600))
	if n%2 == 0 && len(b) > 14 {
		copy(b, ether(uint16(0x0800+6*(n/2%2)), nil))
	}
	return b
}

// changed is a golden frame with some bytes changed, cut or lengthened.
func (h *hostile) changed() []byte {
	b := append([]byte(nil), h.known[h.r.IntN(len(h.known))]...)
	for range 1 + h.r.IntN(4) {
		b[h.r.IntN(len(b))] = byte(h.r.Uint32())
	}
	switch h.r.IntN(8) {
	case 0:
		b = b[:1+h.r.IntN(len(b))]
	case 1:
		b = append(b, h.noise(h.r.IntN(100))...)
	}
	return b
}

func (h *hostile) noise(n int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], h.r.Uint64())
	}
	return b
}

// place is where a frame goes: mostly where nothing is.
func (h *hostile) place() netip.Addr {
	if h.r.IntN(32) == 0 {
		return h.places[h.r.IntN(len(h.places))]
	}
	a := [4]byte{198, 18, byte(h.r.Uint32()), byte(h.r.Uint32())}
	if h.r.IntN(2) == 0 {
		binary.BigEndian.PutUint32(a[:], h.r.Uint32())
	}
	return netip.AddrFrom4(a)
}

// hostilePorts are those of the guest's that the enemy uses: its own stack, which
// knows nothing of them, would answer with more.
const hostilePorts, hostilePortsEnd = 1000, 3000

func (h *hostile) port() uint16 {
	return uint16(hostilePorts + h.r.IntN(hostilePortsEnd-hostilePorts))
}

// ignore keeps what comes to the enemy's ports from the guest's stack.
func (h *hostile) ignore() {
	g := h.s.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop = func(f []byte) bool {
		if len(f) < 38 || f[12] != 8 || f[13] != 0 || f[23] != 6 && f[23] != 17 {
			return false
		}
		port := binary.BigEndian.Uint16(f[36:])
		return port >= hostilePorts && port < hostilePortsEnd
	}
}

func (h *hostile) segment(flags byte) []byte {
	words := h.r.IntN(11)
	b := h.noise(20 + 4*words + h.r.IntN(3)*8)
	binary.BigEndian.PutUint16(b, h.port())
	binary.BigEndian.PutUint16(b[2:], [...]uint16{443, 53, 81, 0}[h.r.IntN(4)])
	b[12], b[13] = byte(5+words)<<4, flags
	return ether(frame.EtherIPv4, h.s.packet(6, h.place(), b))
}

func (h *hostile) datagram() []byte {
	b := h.noise(8 + h.r.IntN(120))
	binary.BigEndian.PutUint16(b, h.port())
	binary.BigEndian.PutUint16(b[2:], [...]uint16{53, 123, 443, 5353}[h.r.IntN(4)])
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

// uncounted is a server of which nothing is asked: a dial that the gate's end cuts
// may have come to it or not.
func uncounted(t *testing.T, port uint16) netip.Addr {
	t.Helper()
	at := newAddr()
	ln, err := net.Listen("tcp", netip.AddrPortFrom(at, port).String())
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	t.Cleanup(func() { ln.Close(); done.Wait() })
	done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			done.Go(func() { defer c.Close(); drain(c) })
		}
	})
	return at
}

// TestD5D18Hostile: whatever frames come, each that is dropped is counted under
// its reason and no other thing is, and a good flow completes in between. Longer:
// go test ./sb-gate -run D5D18Hostile -timeout 1h -args -frames 10000000
func TestD5D18Hostile(t *testing.T) {
	s := start(t, "a.example", "b.example", "u.example:53/udp")
	s.inexact = true
	s.web("a.example", 80)
	s.dns.at("u.example", newAddr())
	s.dns.at("b.example", uncounted(t, 443))
	h := newHostile(s, s.handle("b.example"), s.handle("u.example"), s.guest.net.Gateway())
	h.ignore()
	check := filter(s.guest.net)
	want := map[reason.Code]int64{}
	passed, slowest, began := 0, time.Duration(0), time.Now()
	each := min(100_000, max(1, *frames/5))
	for n := 1; n <= *frames; n++ {
		f := h.next()
		if _, why := check.Check(f); why != "" {
			want[why]++
		} else {
			passed++
		}
		s.send(f)
		if n%each == 0 || n == *frames {
			good := time.Now()
			s.passesHTTP("a.example", 80)
			slowest = max(slowest, time.Since(good))
		}
	}
	took := time.Since(began)
	if err := s.end(); err != nil { // which writes the counts that are not due yet
		t.Error(err)
	}
	for why, n := range want {
		s.hasN(n, "deny frame - - "+string(why)+" -")
	}
	if len(want) < 8 || passed < *frames/20 {
		t.Errorf("the frames were dropped for %d reasons, and %d of them passed: that is no mixture", len(want), passed)
	}
	if slowest > 5*time.Second {
		t.Errorf("a good flow took %v", slowest)
	}
	t.Logf("%d frames in %v, %d of them for the stack; the slowest good flow took %v", *frames, took.Round(time.Millisecond), passed, slowest.Round(time.Millisecond))
}
