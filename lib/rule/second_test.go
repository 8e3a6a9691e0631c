package rule

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sb/lib/class"
)

// second is another matcher, after the text of the package comment and nothing
// of the code: every rule is a regular expression, and all are tried.
type second struct {
	host   *regexp.Regexp
	addrs  string // of an address rule
	port   int
	proto  string
	within string
}

var secondForm = regexp.MustCompile(`^(\*\.)?([a-z0-9.-]+?(?:/[0-9]+)?)(?::([0-9]+)(?:/(udp|raw))?)?(?:@([0-9./]+))?$`)

func readSecond(t *testing.T, text string) second {
	m := secondForm.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the second matcher cannot read %q", text)
	}
	s := second{proto: m[4], within: m[5]}
	s.port, _ = strconv.Atoi(m[3])
	pattern := regexp.QuoteMeta(m[2])
	switch {
	case m[1] != "":
		pattern = `([a-z0-9_-]+\.)*` + pattern
	case regexp.MustCompile(`^[0-9./]+$`).MatchString(m[2]):
		s.addrs, pattern = m[2], `$.`
	}
	s.host = regexp.MustCompile(`^(?:` + pattern + `)$`)
	return s
}

// flow is what the second matcher is asked about.
type flow struct {
	name    string
	addr    string // "" if the name is not resolved
	special bool
	proto   string
	port    int
}

func inRange(cidr, addr string) bool {
	if addr == "" || cidr == "" {
		return false
	}
	if !strings.Contains(cidr, "/") {
		cidr += "/32"
	}
	return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(addr))
}

func (s second) atPort(f flow) bool { return s.port == 0 || f.proto != "icmp" && s.port == f.port }

// level is 0 for no match, 1 proven, 2 with other protocols, 3 for anything.
func (s second) level(f flow) int {
	udp := s.proto == "udp"
	switch {
	case !s.atPort(f) || udp != (f.proto == "udp"):
		return 0
	case s.proto == "raw" || udp:
		return 3
	case s.port == 0 || usual(uint16(s.port)):
		return 1
	}
	return 2
}

func secondSays(allow, deny []second, f flow) (level int, denied bool) {
	for _, r := range deny {
		hit := r.host.MatchString(f.name) || inRange(r.addrs, f.addr)
		if hit && r.atPort(f) && (r.proto == "" || r.proto == f.proto) {
			return 0, true
		}
	}
	opened, byAddr := 0, false
	for _, r := range allow {
		if r.host.MatchString(f.name) {
			level = max(level, r.level(f))
			if inRange(r.within, f.addr) {
				opened = max(opened, r.level(f))
			}
		}
		byAddr = byAddr || inRange(r.addrs, f.addr) && r.level(f) > 0
	}
	if f.special && opened > 0 {
		return opened, false
	}
	if f.special && !byAddr {
		return 0, false
	}
	return level, false
}

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// randomName is one of few, so that rules and questions meet.
func randomName(rnd *rand.Rand) string {
	name := pick(rnd, "example.com", "ample.com", "b.test", "com.example")
	for range rnd.IntN(4) {
		name = pick(rnd, "a", "b", "ab", "ex", "0", "a-b", "com", "example") + pick(rnd, ".", ".", ".", "") + name
	}
	return name
}

func randomAddr(rnd *rand.Rand) string {
	return pick(rnd, "10.0.0.", "10.0.1.", "10.9.8.", "11.0.0.", "203.0.113.", "8.8.8.") + strconv.Itoa(rnd.IntN(3))
}

func randomRule(rnd *rand.Rand, deny bool) string {
	text := pick(rnd, "", "*.") + randomName(rnd)
	isName := rnd.IntN(4) > 0
	if !isName {
		text = pick(rnd, "10.0.0.0/8", "10.0.0.0/24", "10.0.0.1", "11.0.0.0/8", "203.0.113.0/24")
	}
	if rnd.IntN(2) == 0 {
		text += ":" + pick(rnd, "22", "443", "53") + pick(rnd, "", "", "/udp", "/raw")
	}
	if isName && rnd.IntN(3) == 0 {
		text += "@" + pick(rnd, "10.0.0.0/8", "10.0.0.1", "11.0.0.0/8")
	}
	if _, err := parse(text, deny); err != nil {
		return randomRule(rnd, deny)
	}
	return text
}

func TestSecondMatcherOnNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	matched := 0
	for range 200_000 {
		pattern := pick(rnd, "", "*.") + randomName(rnd)
		r, err := Parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		name := randomName(rnd)
		got := Compile([]Rule{r}, nil).Lookup(mustName(t, name)).Allow
		if want := secondMatch(pattern, name); got != want {
			t.Fatalf("rule %s, name %s: %v, the second matcher says %v", pattern, name, got, want)
		}
		if got {
			matched++
		}
	}
	if matched < 1000 {
		t.Errorf("only %d pairs matched: the test hardly tests", matched)
	}
}

// secondMatch compares labels from the right.
func secondMatch(pattern, name string) bool {
	p, n := strings.Split(pattern, "."), strings.Split(name, ".")
	for len(p) > 0 && len(n) > 0 && p[len(p)-1] == n[len(n)-1] {
		p, n = p[:len(p)-1], n[:len(n)-1]
	}
	return len(p) == 1 && p[0] == "*" || len(p) == 0 && len(n) == 0
}

func TestSecondMatcherOnFlows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	var count [2]int
	for range 4_000 {
		var src Source
		var allow, deny []second
		for range 1 + rnd.IntN(12) {
			text := randomRule(rnd, false)
			src.Allow, allow = append(src.Allow, text), append(allow, readSecond(t, text))
		}
		for range rnd.IntN(3) {
			text := randomRule(rnd, true)
			src.Deny, deny = append(src.Deny, text), append(deny, readSecond(t, text))
		}
		set, err := Load(src)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			f := flow{name: randomName(rnd), addr: randomAddr(rnd), proto: pick(rnd, "tcp", "udp", "icmp"), port: pick(rnd, 22, 443, 53)}
			to := netip.MustParseAddr(f.addr)
			f.special = class.Of(to) != ""
			p := map[string]Proto{"tcp": TCP, "udp": UDP, "icmp": ICMP}[f.proto]
			v := set.Reach(mustName(t, f.name), to, class.Of(to), p, uint16(f.port))
			level, denied := secondSays(allow, deny, f)
			if v.Allow != (level > 0) || denied != (v.Reason == "deny-rule") || v.Allow && (v.Raw != (level >= 2) || v.Any != (level == 3)) {
				t.Fatalf("%+v\n%+v\n%+v: the second matcher says level %d, denied %v", src, f, v, level, denied)
			}
			if v.Allow {
				count[1]++
			} else {
				count[0]++
			}
		}
	}
	if count[0] < 5_000 || count[1] < 5_000 {
		t.Errorf("%d refused, %d allowed: too few of one", count[0], count[1])
	}
}

// The canonical spelling is read as the same rule, holds no blank and nothing
// but ASCII, and no rule makes a Set panic or a nobody pass.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com:22/raw@10.0.0.0/8", "[2001:db8::/32]:53/udp", "dns:*.example.com",
		"bücher.example", "host.docker.internal:80", "10.1.2.3/8", "a, b", "::1", "1:2:3", "*", "a@b@c", "[", "127.1"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, text string, deny bool) {
		r, err := parse(text, deny)
		if err != nil {
			if r != (Rule{}) {
				t.Errorf("a rule beside an error: %+v", r)
			}
			return
		}
		again, err := parse(r.String(), deny)
		if again.warning = r.warning; err != nil || again != r {
			t.Errorf("%q is %q, which is %q, %v", text, r, again, err)
		}
		for _, c := range []byte(r.String()) {
			if c <= ' ' || c > '~' {
				t.Errorf("%q has byte %#02x in its canonical form %q", text, c, r)
			}
		}
		set := Compile([]Rule{r}, []Rule{r})
		if v := set.Dial(Name{}, TCP, 443); v.Allow {
			t.Errorf("%q allows no name", r)
		}
		if v := set.DialAddr(netip.Addr{}, TCP, 443); v.Allow {
			t.Errorf("%q allows no address", r)
		}
	})
}

var secondName = regexp.MustCompile(`^(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*([A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)$`)
var secondNumber = regexp.MustCompile(`^(?:[0-9]+|0[xX].*)$`)

// A text is a name if a regular expression says so, and it is the same name as
// its labels are; what a wildcard matches is what the labels say, from the right.
func FuzzName(f *testing.F) {
	for _, s := range []string{"example.com", "A.Example.COM", "a..b", "-a", "127.1", "a.0x7f", "a\x00.example.com", "x\\.example.com", "\u212a.example.com", "host.docker.internal"} {
		f.Add([]byte(s))
	}
	set := Compile([]Rule{mustParse("*.example.com")}, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := string(b)
		n, err := ParseName(s)
		m := secondName.FindStringSubmatch(s)
		want := m != nil && len(s) <= 253 && !secondNumber.MatchString(m[1])
		if (err == nil) != want {
			t.Fatalf("ParseName(%q) = %q, %v; want a name: %v", s, n, err, want)
		}
		parts := bytes.Split(b, []byte("."))
		fromLabels, labelErr := NameFromLabels(parts)
		if (labelErr == nil) != want || fromLabels != n {
			t.Fatalf("NameFromLabels(%q) = %q, %v; ParseName says %q", parts, fromLabels, labelErr, n)
		}
		matches := want && secondMatch("*.example.com", strings.ToLower(s))
		if got := set.Lookup(n).Allow; got != matches {
			t.Fatalf("*.example.com, %q: %v, want %v", s, got, matches)
		}
	})
}

// Whatever bytes the labels have, a wildcard matches them only if they are plain
// and its own labels stand at their end.
func FuzzLabels(f *testing.F) {
	f.Add([]byte("\x07example\x03com"))
	f.Add([]byte("\x09x.example\x03com"))
	f.Add([]byte("\x01a\x07EXAMPLE\x03com"))
	f.Add([]byte("\x00\x07example\x03com"))
	set := Compile([]Rule{mustParse("*.example.com")}, nil)
	plain := regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)
	f.Fuzz(func(t *testing.T, b []byte) {
		var labels [][]byte
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			labels, b = append(labels, b[1:1+n]), b[1+n:]
		}
		want, size := len(labels) >= 2, -1
		for i, l := range labels {
			size += len(l) + 1
			want = want && plain.Match(l)
			if i == len(labels)-2 {
				want = want && strings.EqualFold(string(l), "example")
			}
			if i == len(labels)-1 {
				want = want && strings.EqualFold(string(l), "com")
			}
		}
		n, err := NameFromLabels(labels)
		if got := err == nil && set.Lookup(n).Allow; got != (want && size <= 253) {
			t.Fatalf("%q: %v (%v), want %v", labels, got, err, want)
		}
	})
}

func mustParse(text string) Rule {
	r, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return r
}
