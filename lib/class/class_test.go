package class

import (
	"bufio"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/classes.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, want, _ := strings.Cut(line, " ")
		if want == "-" {
			want = ""
		}
		if got := Of(netip.MustParseAddr(text)); got != want {
			t.Errorf("Of(%s) = %q, want %q", text, got, want)
		}
		n++
	}
	if n < 60 {
		t.Errorf("%d rows, want at least 60", n)
	}
}

func TestInvalid(t *testing.T) {
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("2606:4700::1%x")} {
		if got := Of(a); got != "invalid" {
			t.Errorf("Of(%v) = %q, want invalid", a, got)
		}
	}
	if got := Of(netip.MustParseAddr("2606:4700::1")); got != "" {
		t.Errorf("without its zone: %q, want nothing", got)
	}
}

// A row behind one that contains it would never be reached.
func TestRowsAreReached(t *testing.T) {
	for _, rows := range [][]row{v4, v6} {
		for i, r := range rows {
			if r.prefix != r.prefix.Masked() {
				t.Errorf("%v has bits behind its length", r.prefix)
			}
			for _, before := range rows[:i] {
				if before.prefix.Overlaps(r.prefix) && before.prefix.Bits() <= r.prefix.Bits() {
					t.Errorf("%v stands behind %v", r.prefix, before.prefix)
				}
			}
		}
	}
}

func TestUnwrap(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3.4":              "1.2.3.4",
		"::ffff:1.2.3.4":       "1.2.3.4",
		"::1.2.3.4":            "1.2.3.4",
		"::1":                  "::1",
		"::":                   "::",
		"64:ff9b::1.2.3.4":     "1.2.3.4",
		"64:ff9b:1::1.2.3.4":   "1.2.3.4",
		"2002:102:304::9":      "1.2.3.4",
		"2001::fefd:fcfb":      "1.2.3.4",
		"2606:4700::1.2.3.4":   "2606:4700::102:304",
		"64:ff9b:0:1::1.2.3.4": "64:ff9b:0:1::102:304",
	} {
		if got := Unwrap(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("Unwrap(%s) = %v, want %s", in, got, want)
		}
	}
}

func TestHost(t *testing.T) {
	h := NewHost([]netip.Prefix{
		netip.MustParsePrefix("127.0.0.1/8"),
		netip.MustParsePrefix("192.168.1.7/24"),
		netip.MustParsePrefix("9.9.9.8/31"),
		netip.MustParsePrefix("2606:4700::5/64"),
	})
	for text, want := range map[string]string{
		"192.168.1.7":        ThisHost,
		"192.168.1.255":      ThisHost,
		"192.168.1.8":        "private",
		"::ffff:192.168.1.7": ThisHost,
		"64:ff9b::c0a8:107":  ThisHost,
		"9.9.9.8":            ThisHost,
		"9.9.9.9":            "",
		"2606:4700::5":       ThisHost,
		"2606:4700::6":       "",
		"127.0.0.1":          "loopback",
		"127.255.255.255":    "loopback",
		"8.8.8.8":            "",
	} {
		if got := h.Of(netip.MustParseAddr(text)); got != want {
			t.Errorf("Of(%s) = %q, want %q", text, got, want)
		}
	}
	if got := (Host{}).Of(netip.MustParseAddr("8.8.8.8")); got != ThisHost {
		t.Errorf("the zero Host says %q of 8.8.8.8, want %q", got, ThisHost)
	}
	if got := NewHost(nil).Of(netip.MustParseAddr("8.8.8.8")); got != "" {
		t.Errorf("a host without interfaces says %q of 8.8.8.8, want nothing", got)
	}
}

func TestHostAddrs(t *testing.T) {
	h, err := HostAddrs()
	if err != nil {
		t.Fatal(err)
	}
	if h.own == nil {
		t.Error("HostAddrs returned the zero Host")
	}
	for a := range h.own {
		if got := h.Of(a); got != ThisHost && got != "loopback" {
			t.Errorf("Of(%v), an address of this host, = %q", a, got)
		}
	}
}

// An address is never judged more mildly than the IPv4 address that it carries.
func FuzzOf(f *testing.F) {
	for _, s := range []string{"8.8.8.8", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::80ff:fffe", "::1", "64:ff9b:1::808:808"} {
		a := netip.MustParseAddr(s)
		f.Add(a.AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		got, inner := Of(a), Of(Unwrap(a))
		if inner != "" && got != inner {
			t.Errorf("Of(%v) = %q, of the address within %q", a, got, inner)
		}
		transparent := a.Is4In6() || nat64.Contains(a)
		if inner == "" && got != "" && (transparent || Unwrap(a) == a) {
			t.Errorf("Of(%v) = %q, of the address within nothing", a, got)
		}
		if inner == "" && got == "" && Unwrap(a) != a && !transparent {
			t.Errorf("Of(%v) is nothing: a tunnel's address is special", a)
		}
		if a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			if got == "" {
				t.Errorf("Of(%v) is nothing, net/netip knows better", a)
			}
		}
	})
}
