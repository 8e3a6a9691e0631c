package frame

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// vector is a line of testdata/frames.txt.
type vector struct {
	id, what, result string
	frame            []byte
}

func vectors(t testing.TB) (all []vector) {
	text, err := os.ReadFile("testdata/frames.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		col := strings.SplitN(line, " | ", 4)
		if len(col) != 4 {
			t.Fatalf("%q has %d columns", line, len(col))
		}
		digits, zeros, padded := strings.Cut(col[3], "+")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if padded {
			n, err := strconv.Atoi(zeros)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			b = append(b, make([]byte, n)...)
		}
		all = append(all, vector{col[0], col[1], col[2], b})
	}
	return all
}

func TestVectors(t *testing.T) {
	f := filter()
	all := vectors(t)
	if len(all) < 200 {
		t.Errorf("%d vectors, at least 200 are wanted", len(all))
	}
	seen := map[string]bool{}
	for _, v := range all {
		t.Run(v.id+"/"+v.what, func(t *testing.T) {
			if seen[string(v.frame)] {
				t.Error("this frame stands twice")
			}
			seen[string(v.frame)] = true
			got, why := f.Check(v.frame)
			result := string(why)
			if why == "" {
				result = fmt.Sprintf("pass %d", len(got))
			}
			if result != v.result || !bytes.HasPrefix(v.frame, got) {
				t.Errorf("%s, want %s", result, v.result)
			}
		})
	}
}

// checkIndependently says of a frame that passed what must be true of it, in
// other words than the filter's.
func checkIndependently(f *Filter, in, got []byte) error {
	at := func(i, n int) string { return string(got[i : i+n]) }
	u16 := func(i int) int { return int(got[i])<<8 | int(got[i+1]) }
	switch {
	case len(in) > 1514 || !bytes.HasPrefix(in, got) || len(got) < 42:
		return fmt.Errorf("%d bytes of %d", len(got), len(in))
	case at(6, 6) != string(f.GuestMAC):
		return fmt.Errorf("it is not the guest's")
	case at(12, 2) == "\x08\x06":
		if want := "\x00\x01\x08\x00\x06\x04\x00\x01" + string(f.GuestMAC) + "\xc6\x12\x00\x02"; at(14, 18) != want || at(38, 4) != "\xc6\x12\x00\x01" || len(got) != 42 {
			return fmt.Errorf("ARP that says or asks for something else")
		}
		return nil
	case at(12, 2) != "\x08\x00", at(0, 6) != string(f.GatewayMAC), got[14] != 0x45, u16(16) != len(got)-14, at(26, 4) != "\xc6\x12\x00\x02":
		return fmt.Errorf("the IP header")
	case u16(20) != 0 && u16(20) != 0x4000:
		return fmt.Errorf("a fragment")
	case got[30] == 0, got[30] == 127, got[30]>>4 == 0xe, at(30, 4) == "\xff\xff\xff\xff", at(30, 4) == "\xc6\x12\x00\xff", at(30, 4) == "\xc6\x12\x00\x02":
		return fmt.Errorf("the destination")
	case got[23] == 1 && (at(34, 2) != "\x08\x00"):
		return fmt.Errorf("ICMP that is no echo request")
	case got[23] == 6 && (len(got) < 54 || got[46]>>4 < 5 || 34+int(got[46]>>4)*4 > len(got)):
		return fmt.Errorf("the TCP header")
	case got[23] == 17 && (u16(38) < 8 || 34+u16(38) > len(got)):
		return fmt.Errorf("the UDP header")
	case got[23] != 1 && got[23] != 6 && got[23] != 17:
		return fmt.Errorf("protocol %d", got[23])
	}
	return nil
}

// TestD16D18Sweep: every EtherType at several lengths, every protocol, every
// first byte of an IP header, every fragment field. What passes is what may.
func TestD16D18Sweep(t *testing.T) {
	f := filter()
	good := build(f, protoTCP, "198.18.1.0", append(tcp(), make([]byte, 40)...))
	try := func(what string, frames int, make func(i int) []byte) (passed int) {
		t.Helper()
		for i := range frames {
			in := make(i)
			got, why := f.Check(in)
			if why != "" {
				continue
			}
			passed++
			if err := checkIndependently(f, in, got); err != nil {
				t.Fatalf("%s %d: % x passed: %v", what, i, in, err)
			}
		}
		return passed
	}
	for _, size := range []int{14, 42, 60, len(good)} {
		n := try("EtherType", 1<<16, func(i int) []byte { return change(good[:size], 12, byte(i>>8), byte(i)) })
		if want := map[bool]int{true: 1}[size == len(good)]; n != want { // an IPv4 packet is no ARP
			t.Errorf("at %d bytes %d EtherTypes let an IPv4 packet pass, want %d", size, n, want)
		}
	}
	body := append(tcp(), 0)
	body[0], body[1], body[5] = icmpEcho, 0, tcpLen // an echo request and a UDP length, too
	if n := try("protocol", 1<<8, func(i int) []byte { return build(f, byte(i), "198.18.1.0", body) }); n != 3 {
		t.Errorf("%d protocols pass, want 3", n)
	}
	if n := try("first byte", 1<<8, func(i int) []byte { return change(good, 14, byte(i)) }); n != 1 {
		t.Errorf("%d versions and lengths pass, want 1", n)
	}
	if n := try("fragment field", 1<<16, func(i int) []byte { return change(good, 20, byte(i>>8), byte(i)) }); n != 2 {
		t.Errorf("%d fragment fields pass, want 2", n)
	}
	if n := try("ICMP", 1<<16, func(i int) []byte { return build(f, protoICMP, "198.18.1.0", icmp(byte(i>>8), byte(i))) }); n != 1 {
		t.Errorf("%d ICMP types and codes pass, want 1", n)
	}
	if n := try("TCP flags and offset", 1<<16, func(i int) []byte { return change(good, 46, byte(i>>8), byte(i)) }); n != 11*16*256 {
		t.Errorf("%d offsets and flags pass, want all flags and 11 offsets, with any reserved bits", n)
	}
}

// TestD5D6Lengths: each length of a frame, each length in a header, of random
// bytes and of good ones.
func TestD5D6Lengths(t *testing.T) {
	f := filter()
	r := rand.New(rand.NewPCG(5, 6))
	passed := 0
	check := func(in []byte) {
		if got, why := f.Check(in); why == "" {
			passed++
			if err := checkIndependently(f, in, got); err != nil {
				t.Fatalf("% x passed: %v", in, err)
			}
		}
	}
	for size := range 65 {
		for range 200 {
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			check(b)
			if size >= 14 { // the same behind a good link header
				copy(b, build(f, protoTCP, "198.18.1.0", nil)[:14])
				check(b)
			}
		}
	}
	if passed > 0 {
		t.Errorf("%d random frames passed", passed)
	}
	good := build(f, protoUDP, "198.18.1.0", append(udp(), make([]byte, 92)...))
	for total := range 1 << 16 {
		check(change(good, 16, byte(total>>8), byte(total)))
		check(change(good, 38, byte(total>>8), byte(total)))
	}
	if want := (120 - 28 + 1) + (100 - 8 + 1); passed != want {
		t.Errorf("%d lengths of a packet and a datagram passed, want %d", passed, want)
	}
}

// FuzzCheck: whatever the bytes, no panic, and what passes is a prefix of the
// frame of which everything holds that checkIndependently says.
func FuzzCheck(fz *testing.F) {
	f := filter()
	for _, v := range vectors(fz) {
		fz.Add(v.frame)
	}
	fz.Fuzz(func(t *testing.T, in []byte) {
		got, why := f.Check(in)
		if why != "" {
			return
		}
		if err := checkIndependently(f, in, got); err != nil {
			t.Fatalf("% x passed as % x: %v", in, got, err)
		}
	})
}
