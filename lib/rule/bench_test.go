package rule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"sb/lib/class"
)

// benchSet is n rules, the forms in the same proportions whatever n is, and a
// thousand names and as many addresses, of which the rules know half.
type benchSet struct {
	set   *Set
	names []Name
	addrs []netip.Addr
}

func benchRules(tb testing.TB, n int) benchSet {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	src := Source{Origin: "bench"}
	var b benchSet
	name := func(text string) {
		n, err := ParseName(text)
		if err != nil {
			tb.Fatal(err)
		}
		b.names = append(b.names, n)
	}
	for i := range n {
		host := fmt.Sprintf("h%x.example%d.com", rnd.Uint32(), i)
		addr := netip.AddrFrom4([4]byte{11, byte(rnd.Uint32()), byte(rnd.Uint32()), byte(rnd.Uint32())})
		switch i % 10 {
		case 0, 1, 2, 3:
			src.Allow = append(src.Allow, host)
			name(host)
		case 4:
			src.Allow = append(src.Allow, host+":22")
			name(host)
		case 5, 6:
			src.Allow = append(src.Allow, "*."+host)
			name("a.b." + host)
		case 7:
			src.Allow = append(src.Allow, addr.String()+":443")
			b.addrs = append(b.addrs, addr)
		case 8:
			p, _ := addr.Prefix(24)
			src.Allow = append(src.Allow, p.String())
			b.addrs = append(b.addrs, p.Addr().Next())
		case 9:
			src.Deny = append(src.Deny, "*.no."+host)
			name("x.no." + host)
		}
	}
	b.names = some(rnd, b.names, 500)
	b.addrs = some(rnd, b.addrs, 500)
	for range 500 { // as many that no rule knows
		name(fmt.Sprintf("n%x.other%d.org", rnd.Uint32(), rnd.Uint32()))
		b.addrs = append(b.addrs, netip.AddrFrom4([4]byte{12, byte(rnd.Uint32()), 3, 4}))
	}
	rnd.Shuffle(len(b.names), func(i, j int) { b.names[i], b.names[j] = b.names[j], b.names[i] })
	rnd.Shuffle(len(b.addrs), func(i, j int) { b.addrs[i], b.addrs[j] = b.addrs[j], b.addrs[i] })
	set, err := Load(src)
	if err != nil {
		tb.Fatal(err)
	}
	b.set = set
	return b
}

// some draws n of all, with repetition: however many rules there are, the
// questions are as many.
func some[T any](rnd *rand.Rand, all []T, n int) []T {
	drawn := make([]T, n)
	for i := range drawn {
		drawn[i] = all[rnd.IntN(len(all))]
	}
	return drawn
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		s := benchRules(b, n)
		names, addrs := s.names, s.addrs
		public := netip.MustParseAddr("8.8.8.8")
		b.Run(fmt.Sprintf("lookup/rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.set.Lookup(names[i%len(names)])
			}
		})
		b.Run(fmt.Sprintf("dial/rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.set.Dial(names[i%len(names)], TCP, 443)
			}
		})
		b.Run(fmt.Sprintf("addr/rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.set.DialAddr(addrs[i%len(addrs)], TCP, 443)
			}
		})
		b.Run(fmt.Sprintf("reach/rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.set.Reach(names[i%len(names)], public, class.Of(public), TCP, 443)
			}
		})
	}
}

// The dearest questions: a name of 127 labels under a deep suffix, an address
// under rules of every prefix length.
func BenchmarkWorst(b *testing.B) {
	src := Source{Origin: "bench"}
	for bits := 8; bits <= 32; bits++ {
		p, _ := netip.MustParseAddr("11.170.170.170").Prefix(bits)
		src.Allow = append(src.Allow, p.String()+":22")
	}
	src.Allow = append(src.Allow, "*.a.b.c.d.e.f.example.com", "*.example.com")
	set, err := Load(src)
	if err != nil {
		b.Fatal(err)
	}
	deep, err := ParseName(strings.Repeat("a.", 124) + "xy.z")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("name", func(b *testing.B) {
		for b.Loop() {
			set.Dial(deep, TCP, 443)
		}
	})
	addr := netip.MustParseAddr("11.170.170.171")
	b.Run("addr", func(b *testing.B) {
		for b.Loop() {
			set.DialAddr(addr, TCP, 443)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		benchRules(b, 10_000)
	}
}
