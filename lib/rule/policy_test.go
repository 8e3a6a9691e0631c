package rule

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"sb/lib/class"
)

// ruleSet reads the RULES column.
func ruleSet(t *testing.T, text string) *Set {
	t.Helper()
	src := Source{Origin: "vector"}
	for _, w := range strings.Fields(text) {
		switch {
		case w == "none":
		case w[0] == '+':
			src.Allow = append(src.Allow, w[1:])
		case w[0] == '-':
			src.Deny = append(src.Deny, w[1:])
		default:
			t.Fatalf("rule %q is neither + nor -", w)
		}
	}
	set, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// ask answers a QUESTION as the RESULT column has it.
func ask(t *testing.T, s *Set, question string) string {
	t.Helper()
	if host, ok := strings.CutPrefix(question, "lookup "); ok {
		v := s.Lookup(mustName(t, host))
		return answer(v, "")
	}
	if host, ok := strings.CutPrefix(question, "dns:"); ok {
		return answer(s.LookupOther(mustName(t, host)), " txt,srv,mx")
	}
	host, at, resolved := strings.Cut(question, "@")
	p, port := ICMP, uint16(0)
	if rest, ok := strings.CutSuffix(host, "/udp"); ok {
		host, p = rest, UDP
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && (strings.Count(host, ":") == 1 || host[i-1] == ']') {
		n, err := strconv.ParseUint(host[i+1:], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		host, port = host[:i], uint16(n)
		if p == ICMP {
			p = TCP
		}
	}
	var v Verdict
	switch a, err := netip.ParseAddr(strings.Trim(host, "[]")); {
	case err == nil:
		v = s.DialAddr(a, p, port)
	case resolved:
		to := netip.MustParseAddr(at)
		v = s.Reach(mustName(t, host), to, class.Of(to), p, port)
	default:
		v = s.Dial(mustName(t, host), p, port)
	}
	return answer(v, " "+strings.Join(v.Admits(p, port), ","))
}

func answer(v Verdict, admits string) string {
	if v.Allow {
		return fmt.Sprintf("allow %s%s", v.Rule, admits)
	}
	by := v.Rule
	if by == "" {
		by = "-"
	}
	return fmt.Sprintf("deny %s %s", by, v.Reason)
}

func mustName(t *testing.T, s string) Name {
	t.Helper()
	n, err := ParseName(strings.TrimSuffix(s, "."))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPolicy(t *testing.T) {
	vectors(t, "policy.txt", 3, func(col []string, line int) {
		if got := ask(t, ruleSet(t, col[0]), col[1]); got != col[2] {
			t.Errorf("policy.txt:%d: %s: %s is %q, want %q", line, col[0], col[1], got, col[2])
		}
	})
}

func TestHosts(t *testing.T) {
	vectors(t, "hosts.txt", 3, func(col []string, line int) {
		switch text := unquote(t, col[1]); col[0] {
		case "accept":
			if _, err := Parse(text); err != nil {
				t.Errorf("hosts.txt:%d: %v", line, err)
			}
		case "reject":
			if r, err := Parse(text); err == nil || !strings.Contains(err.Error(), col[2]) {
				t.Errorf("hosts.txt:%d: rule %q, error %v, want %q", line, r, err, col[2])
			}
		case "yes", "no":
			got := ask(t, ruleSet(t, text), col[2])
			if want := col[0] == "yes"; strings.HasPrefix(got, "allow ") != want {
				t.Errorf("hosts.txt:%d: %s: %s is %q", line, text, col[2], got)
			}
		default:
			t.Errorf("hosts.txt:%d: no such kind of line: %q", line, col[0])
		}
	})
}
