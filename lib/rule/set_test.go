package rule

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sb/lib/class"
	"sb/lib/reason"
)

func TestNothingAllowsNothing(t *testing.T) {
	n, a := mustName(t, "example.com"), netip.MustParseAddr("8.8.8.8")
	open := ruleSet(t, "+example.com +dns:example.com +8.8.8.8")
	for name, s := range map[string]*Set{"nil": nil, "zero": {}, "empty": Compile(nil, nil), "zero rules": Compile([]Rule{{}}, []Rule{{}})} {
		for what, ask := range map[string]func(*Set) Verdict{
			"Lookup":      func(s *Set) Verdict { return s.Lookup(n) },
			"LookupOther": func(s *Set) Verdict { return s.LookupOther(n) },
			"Dial":        func(s *Set) Verdict { return s.Dial(n, TCP, 443) },
			"ping":        func(s *Set) Verdict { return s.Dial(n, ICMP, 0) },
			"DialAddr":    func(s *Set) Verdict { return s.DialAddr(a, TCP, 443) },
			"Reach":       func(s *Set) Verdict { return s.Reach(n, a, "", TCP, 443) },
		} {
			if v := ask(s); v.Allow || v.Reason == "" || v.Reason == reason.AllowRule {
				t.Errorf("%s of the %s set: %+v", what, name, v)
			}
			if v := ask(open); !v.Allow || v.Reason != reason.AllowRule {
				t.Errorf("control: %s of an open set: %+v", what, v)
			}
		}
		if !s.Budgeted(n) || s.Warnings() != nil {
			t.Errorf("the %s set: Budgeted %v, Warnings %q", name, s.Budgeted(n), s.Warnings())
		}
	}
	if (Verdict{}).Allow || (Verdict{}).Admits(TCP, 443) != nil {
		t.Error("the zero Verdict allows")
	}
}

func TestNoNameNoProtocol(t *testing.T) {
	s := ruleSet(t, "+example.com +10.0.0.0/8 +example.com:22/raw")
	n, a := mustName(t, "example.com"), netip.MustParseAddr("10.0.0.1")
	for _, v := range []Verdict{s.Lookup(Name{}), s.LookupOther(Name{}), s.Dial(Name{}, TCP, 443), s.Reach(Name{}, a, "private", TCP, 443)} {
		if v.Allow || v.Reason != reason.BadName {
			t.Errorf("no name: %+v", v)
		}
	}
	if v := s.DialAddr(netip.Addr{}, TCP, 443); v.Allow {
		t.Errorf("no address: %+v", v)
	}
	if v := s.Reach(n, netip.Addr{}, "", TCP, 443); v.Allow {
		t.Errorf("resolved to no address: %+v", v)
	}
	h := ruleSet(t, "+host.sb.internal:80 +10.0.0.1:80")
	host, loopback := mustName(t, "host.sb.internal"), netip.MustParseAddr("127.0.0.1")
	if v := h.Reach(host, a, "private", TCP, 80); v.Allow {
		t.Errorf("the host's loopback at %s: %+v", a, v)
	}
	if v := h.Reach(host, loopback, "loopback", TCP, 80); !v.Allow {
		t.Errorf("control: the host's loopback: %+v", v)
	}
	for _, p := range []Proto{0, 4, 255} {
		if v := s.Dial(n, p, 22); v.Allow {
			t.Errorf("protocol %d: %+v", p, v)
		}
		if v := s.DialAddr(a, p, 22); v.Allow {
			t.Errorf("protocol %d to an address: %+v", p, v)
		}
	}
	if !s.Dial(n, TCP, 22).Allow || !s.DialAddr(a, TCP, 22).Allow {
		t.Error("control: TCP is refused")
	}
}

func TestBudgeted(t *testing.T) {
	s := ruleSet(t, "+*.example.com +www.example.com:443 +dns:mail.example.com -ftp.example.com")
	for host, want := range map[string]bool{
		"www.example.com":  false,
		"a.example.com":    true,
		"mail.example.com": true, // its dns: rule gives it no address
		"ftp.example.com":  true,
		"example.com":      true,
		"other.test":       true,
	} {
		if got := s.Budgeted(mustName(t, host)); got != want {
			t.Errorf("Budgeted(%s) = %v, want %v", host, got, want)
		}
	}
}

// A rule that was read for one side opens nothing on the other.
func TestWrongSide(t *testing.T) {
	wide, err := ParseDeny("*.com")
	if err != nil {
		t.Fatal(err)
	}
	n := mustName(t, "example.com")
	if v := Compile([]Rule{wide}, nil).Lookup(n); v.Allow {
		t.Errorf("a deny rule among the allows: %+v", v)
	}
	raw, within := mustParse("example.com:443/raw"), mustParse("example.com@10.0.0.0/8")
	bare := []Rule{mustParse("example.com")}
	if v := Compile(bare, nil).Dial(n, TCP, 443); !v.Allow {
		t.Errorf("control: %+v", v)
	}
	if v := Compile(bare, []Rule{raw}).Dial(n, TCP, 443); v.Reason != reason.DenyRule {
		t.Errorf("a /raw rule among the denies: %+v", v)
	}
	if v := Compile(bare, []Rule{within}).Dial(n, TCP, 443); v.Reason != reason.DenyRule {
		t.Errorf("an @RANGE rule among the denies: %+v", v)
	}
}

func TestLoad(t *testing.T) {
	set, err := Load(
		Source{Origin: "--allow", Allow: []string{"*.github.io", "a.example"}},
		Source{Origin: "config.toml", Allow: []string{"*.GitHub.io"}, Deny: []string{"x.github.io", "*.gitlab.io"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{`rule "*.github.io": anyone can publish under github.io`}; !slices.Equal(set.Warnings(), want) {
		t.Errorf("warnings %q, want %q", set.Warnings(), want)
	}
	if v := set.Dial(mustName(t, "x.github.io"), TCP, 443); v.Reason != reason.DenyRule {
		t.Errorf("x.github.io: %+v", v)
	}
	for _, c := range []struct {
		src  Source
		want string
	}{
		{Source{Origin: "--allow", Allow: []string{"good.example", "a b"}}, `--allow: rule "a b": ' ' (character 2)`},
		{Source{Origin: "rules:3", Deny: []string{"a.example:1/raw"}}, `rules:3: rule "a.example:1/raw": a deny rule`},
	} {
		set, err := Load(Source{Origin: "first", Allow: []string{"good.example"}}, c.src)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.src, err, c.want)
		}
		if set != nil {
			t.Errorf("%+v: a set beside an error", c.src)
		}
	}
}

func TestSuggest(t *testing.T) {
	lan, none := netip.MustParseAddr("10.1.2.3"), netip.Addr{}
	for _, c := range []struct {
		target string
		p      Proto
		port   uint16
		why    reason.Code
		at     netip.Addr
		want   string
	}{
		{"example.com", ICMP, 0, reason.NoAllowRule, none, "example.com"},
		{"example.com", TCP, 0, reason.NoAllowRule, none, "example.com"},
		{"Example.com", TCP, 443, reason.NoAllowRule, none, "example.com:443"},
		{"github.com", TCP, 22, reason.NoAllowRule, none, "github.com:22"},
		{"example.com", UDP, 53, reason.NoAllowRule, none, "example.com:53/udp"},
		{"example.com", UDP, 443, reason.NoAllowRule, none, ""},
		{"example.com", UDP, 53, reason.UDPDenied, none, "example.com:53/udp"},
		{"example.com", UDP, 443, reason.QUICRefused, none, ""},
		{"example.com", TCP, 443, reason.DenyRule, none, ""},
		{"example.com", TCP, 443, reason.SNIDenied, none, "example.com"},
		{"example.com", TCP, 80, reason.HostDenied, none, "example.com"},
		{"example.com", TCP, 443, reason.SNIAbsent, none, "example.com:443/raw"},
		{"example.com", TCP, 443, reason.NotIdentified, none, "example.com:443/raw"},
		{"example.com", TCP, 5432, reason.NotIdentified, none, "example.com:5432"},
		{"example.com", TCP, 25, reason.ServerFirst, none, "example.com:25"},
		{"example.com", TCP, 8080, reason.HTTP2Cleartext, none, "example.com:8080/raw"},
		{"example.com", TCP, 80, reason.HTTPUpgrade, none, "example.com:80/raw"},
		{"example.com", TCP, 443, reason.SNIEncrypted, none, ""},
		{"example.com", TCP, 443, reason.ConnectTimeout, none, ""},
		{"example.com", UDP, 53, reason.DNSType, none, "dns:example.com"},
		{"_sip._tcp.example.com", UDP, 53, reason.DNSType, none, "dns:_sip._tcp.example.com"},
		{"git.corp.example", TCP, 22, reason.AddressClass, lan, "git.corp.example:22@10.1.2.3"},
		{"git.corp.example", ICMP, 0, reason.AddressClass, lan, "git.corp.example@10.1.2.3"},
		{"git.corp.example", TCP, 22, reason.AddressClass, none, ""},
		{"evil.example", TCP, 80, reason.AddressClass, netip.MustParseAddr("169.254.169.254"), ""},
		{"evil.example", TCP, 80, reason.AddressClass, netip.MustParseAddr("127.0.0.1"), ""},
		{"evil.example", TCP, 80, reason.AddressClass, netip.MustParseAddr("64:ff9b::7f00:1"), ""},
		{"192.168.1.10", TCP, 5432, reason.UnresolvedAddress, none, "192.168.1.10:5432"},
		{"192.168.1.10", ICMP, 0, reason.UnresolvedAddress, none, "192.168.1.10"},
		{"8.8.8.8", UDP, 53, reason.UnresolvedAddress, none, "8.8.8.8:53/udp"},
		{"2001:db8::1", TCP, 443, reason.UnresolvedAddress, none, "[2001:db8::1]:443"},
		{"2001:db8::1", ICMP, 0, reason.UnresolvedAddress, none, "2001:db8::1"},
		{"10.0.0.5", TCP, 81, reason.NoAllowRule, none, "10.0.0.5:81"},
		{"169.254.169.254", TCP, 80, reason.UnresolvedAddress, none, ""},
		{"127.0.0.1", TCP, 80, reason.UnresolvedAddress, none, ""},
		{"198.18.1.7", TCP, 80, reason.UnresolvedAddress, none, ""},
		{"host.docker.internal", TCP, 8080, reason.NoAllowRule, none, "host.sb.internal:8080"},
		{"host.sb.internal", ICMP, 0, reason.NoAllowRule, none, ""},
		{"not a name", TCP, 443, reason.NoAllowRule, none, ""},
		{"", TCP, 443, reason.NoAllowRule, none, ""},
	} {
		if got := Suggest(c.target, c.p, c.port, c.why, c.at); got != c.want {
			t.Errorf("Suggest(%s, %s, %d, %s, %v) = %q, want %q", c.target, c.p, c.port, c.why, c.at, got, c.want)
		}
	}
}

// What is suggested is a rule, and with it the same flow passes.
func TestSuggestionsHelp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	helped := 0
	for range 20_000 {
		src := Source{Allow: []string{randomRule(rnd, false), randomRule(rnd, false)}, Deny: []string{randomRule(rnd, true)}}
		set, err := Load(src)
		if err != nil {
			t.Fatal(err)
		}
		n, to := mustName(t, randomName(rnd)), netip.MustParseAddr(randomAddr(rnd))
		p, port := pick(rnd, TCP, TCP, UDP, ICMP), pick[uint16](rnd, 22, 443, 53)
		v := set.Reach(n, to, class.Of(to), p, port)
		text := Suggest(n.String(), p, port, v.Reason, to)
		if v.Allow && text != "" || v.Reason == reason.DenyRule && text != "" {
			t.Fatalf("%+v: %q is suggested", v, text)
		}
		if text == "" || p == UDP && port == 443 {
			continue
		}
		src.Allow = append(src.Allow, text)
		if set, err = Load(src); err != nil {
			t.Fatal(err)
		}
		after := set.Reach(n, to, class.Of(to), p, port)
		if !after.Allow && !(v.Reason != reason.AddressClass && after.Reason == reason.AddressClass) {
			t.Fatalf("%+v: %s %s:%d at %v was %v, and is %+v with %q", src, p, n, port, to, v.Reason, after, text)
		}
		helped++
	}
	if helped < 1000 {
		t.Errorf("only %d suggestions", helped)
	}
}

func TestDecisionsDoNotAllocate(t *testing.T) {
	b := benchRules(t, 100)
	to := netip.MustParseAddr("10.1.2.3")
	i := 0
	if got := testing.AllocsPerRun(1000, func() {
		n := b.names[i%len(b.names)]
		i++
		b.set.Lookup(n)
		b.set.LookupOther(n)
		b.set.Dial(n, UDP, 53)
		b.set.Reach(n, to, "private", TCP, 443)
		b.set.DialAddr(b.addrs[i%len(b.addrs)], TCP, 443)
	}); got > 0 {
		t.Errorf("%v allocations a round, want none", got)
	}
}

// TestLoopback: a rule for what is the guest itself, in the guest, says what was meant.
func TestLoopback(t *testing.T) {
	for text, warned := range map[string]bool{"127.0.0.1:80": true, "127.1.2.3": true, "[::1]:80": true, "localhost:80": true, "192.0.2.1:80": false, "a.example": false, "host.sb.internal:80": false} {
		set, err := Load(Source{Origin: "--allow", Allow: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(set.Warnings(), "\n"); strings.Contains(got, "is host.sb.internal:PORT") != warned {
			t.Errorf("%s: %q", text, got)
		}
		set, err = Load(Source{Origin: "--deny", Deny: []string{text}})
		if err != nil || len(set.Warnings()) > 0 {
			t.Errorf("denied: %s: %q, %v", text, set.Warnings(), err)
		}
	}
}
