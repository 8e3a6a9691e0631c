package capture

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// seg is a TCP segment between 10.0.0.1:1000 and 10.0.0.2:80.
type seg struct {
	out      bool
	flags    byte
	seq, ack uint32
	n        int // payload
}

func (s seg) packet() []byte {
	b := make([]byte, etherLen+40)
	binary.BigEndian.PutUint16(b[12:], typeIPv4)
	ip, t := b[etherLen:], b[etherLen+20:]
	ip[0], ip[9] = 0x45, tcp
	binary.BigEndian.PutUint16(ip[2:], uint16(40+s.n))
	copy(ip[12:], "\x0a\x00\x00\x01\x0a\x00\x00\x02")
	binary.BigEndian.PutUint16(t, 1000)
	binary.BigEndian.PutUint16(t[2:], 80)
	if !s.out {
		copy(ip[12:], "\x0a\x00\x00\x02\x0a\x00\x00\x01")
		binary.BigEndian.PutUint16(t, 80)
		binary.BigEndian.PutUint16(t[2:], 1000)
	}
	binary.BigEndian.PutUint32(t[4:], s.seq)
	binary.BigEndian.PutUint32(t[8:], s.ack)
	t[12], t[13] = 5<<4, s.flags
	return b
}

func newCapture() *Capture {
	return &Capture{flows: map[key]*Flow{}, other: map[string]int{}, parts: map[fragment]bool{}}
}

func TestSegments(t *testing.T) {
	const s, a, f, r = flagSYN, flagACK, flagFIN, flagRST
	const top = 0xffffffff
	open := []seg{{true, s, 100, 0, 0}, {false, s | a, 500, 101, 0}, {true, a, 101, 501, 0}}
	for _, c := range []struct {
		name string
		segs []seg
		want string // of each flow, behind its addresses
	}{
		{"refused", []seg{{true, s, 100, 0, 0}, {false, r | a, 0, 101, 0}}, "up=0 down=0 rst"},
		{"no answer", []seg{{true, s, 100, 0, 0}, {true, s, 100, 0, 0}}, "up=0 down=0"},
		{"open", append(open, seg{true, a, 101, 501, 10}, seg{false, a, 501, 111, 20}), "up=10 down=0 open"},
		{"acknowledged", append(open, seg{true, a, 101, 501, 10}, seg{false, a, 501, 111, 20}, seg{true, a, 111, 521, 0}), "up=10 down=20 open"},
		{"sent again", append(open, seg{true, a, 101, 501, 10}, seg{true, a, 101, 501, 10}, seg{true, a, 106, 501, 10}), "up=15 down=0 open"},
		{"out of order", append(open, seg{true, a, 111, 501, 5}, seg{true, a, 101, 501, 10}), "up=15 down=0 open"},
		{"ended", append(open, seg{true, a | f, 101, 501, 3}, seg{false, a | f, 501, 105, 7}, seg{true, a, 105, 509, 0}), "up=3 down=7 open fin"},
		{"ended, not acknowledged", append(open, seg{true, a | f, 101, 501, 3}, seg{false, a | f, 501, 105, 7}), "up=3 down=0 open"},
		{"half ended", append(open, seg{false, a | f, 501, 101, 7}, seg{true, a, 101, 509, 2}), "up=2 down=7 open"},
		{"cut here, unread left out", append(open, seg{false, a, 501, 101, 7}, seg{true, a, 101, 508, 0}, seg{false, a, 508, 101, 9}, seg{true, r | a, 101, 508, 0}), "up=0 down=7 open rst"},
		{"cut there", append(open, seg{true, a, 101, 501, 3}, seg{false, r, 501, 0, 0}), "up=3 down=0 open rst"},
		{"a reset after the end", append(open, seg{true, a | f, 101, 501, 3}, seg{false, a | f, 501, 105, 0}, seg{true, a, 105, 502, 0}, seg{false, r, 502, 0, 0}), "up=3 down=0 open fin"},
		{"numbers that wrap", []seg{{true, s, top - 1, 0, 0}, {false, s | a, top, top, 0}, {true, a, top, 0, 10}, {false, a, 0, 9, 20}, {true, a, 9, 20, 5}}, "up=15 down=20 open"},
		{"the same ports again", append(open, seg{false, r, 501, 0, 0}, seg{true, s, 9000, 0, 0}), "up=0 down=0 open rst; up=0 down=0"},
		{"its beginning not seen", []seg{{true, a, 101, 501, 3}}, "up=3 down=0 stray"},
		{"begun from outside", []seg{{false, s, 500, 0, 0}, {true, s | a, 100, 501, 0}}, "up=0 down=0 stray"},
	} {
		cap := newCapture()
		for _, s := range c.segs {
			p := s.packet()
			cap.packet(p, len(p), s.out, time.Now())
		}
		var got []string
		for _, f := range cap.Flows() {
			_, text, _ := strings.Cut(f.String(), ":80 ")
			got = append(got, text)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestDatagrams: what goes out after an answer of a nameserver is another question;
// elsewhere one pair of ports is one flow.
func TestDatagrams(t *testing.T) {
	for port, want := range map[byte][]string{53: {"up=15 down=20", "up=7 down=9"}, 77: {"up=22 down=29"}} {
		cap := newCapture()
		for _, d := range []struct {
			out bool
			n   byte
		}{{true, 10}, {true, 5}, {false, 20}, {true, 7}, {false, 9}} {
			here, there := "\x01\x02\x03\x04", "\x05\x06\x07\x08"
			ports := []byte{0x80, 0, 0, port}
			if !d.out {
				here, there, ports = there, here, []byte{0, port, 0x80, 0}
			}
			ip := "000000000000\x08\x00E\x00\x00" + string(28+d.n) + "\x00\x00\x00\x00\x40\x11\x00\x00" + here + there
			p := append(append([]byte(ip), ports...), 0, 8+d.n, 0, 0)
			cap.packet(append(p, make([]byte, d.n)...), len(p)+int(d.n), d.out, time.Now())
		}
		var got []string
		for _, f := range cap.Flows() {
			_, text, _ := strings.Cut(f.String(), fmt.Sprintf(":%d ", port))
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("port %d: %q, want %q", port, got, want)
		}
	}
}

// TestLongFlow: more bytes than a sequence number holds.
func TestLongFlow(t *testing.T) {
	cap := newCapture()
	for _, s := range []seg{{true, flagSYN, 7, 0, 0}, {false, flagSYN | flagACK, 9, 8, 0}} {
		p := s.packet()
		cap.packet(p, len(p), s.out, time.Now())
	}
	sent := int64(0)
	for ; sent < 9<<30; sent += 60000 {
		p := seg{true, flagACK, uint32(8 + sent), 10, 60000}.packet()
		cap.packet(p, len(p), true, time.Now())
	}
	if f := cap.Flows()[0]; f.Up != sent {
		t.Errorf("%s, want up=%d", f, sent)
	}
}

func TestOther(t *testing.T) {
	for want, b := range map[string]string{
		"out runt":                       "123",
		"out arp":                        "000000000000\x08\x06",
		"out ethertype 0x88b5, 14 bytes": "000000000000\x88\xb5",
		"out ethertype 0x0800, 15 bytes": "000000000000\x08\x00E",
		"out ipv4 47 1.2.3.4 to 5.6.7.8": "000000000000\x08\x00E\x00\x00\x1c\x00\x00\x00\x00\x40\x2f\x00\x00\x01\x02\x03\x04\x05\x06\x07\x0812345678",
		"out ipv4 1 1.2.3.4 to 5.6.7.8":  "000000000000\x08\x00E\x00\x00\x1c\x00\x00\x00\x00\x40\x01\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08\x03\x03345678", // unreachable
		"out ipv4 17 1.2.3.4 to 5.6.7.8": "000000000000\x08\x00E\x00\x00\x1c\x00\x00\x00\x01\x40\x11\x00\x00\x01\x02\x03\x04\x05\x06\x07\x0812345678",       // a fragment of nothing
		"out ipv6 58 to ::":              "000000000000\x86\xdd`\x00\x00\x00\x00\x00\x3a\xff" + strings.Repeat("\x00", 32),
	} {
		cap := newCapture()
		cap.packet([]byte(b), len(b), true, time.Now())
		if cap.other[want] != 1 || len(cap.other) != 1 || len(cap.order) != 0 {
			t.Errorf("%q: %v and %d flows, want %q", b, cap.other, len(cap.order), want)
		}
	}
}
