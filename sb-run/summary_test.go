package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestTotals: what was refused is listed with the flag that would allow it; what
// nobody asked for is not.
func TestTotals(t *testing.T) {
	for line, want := range map[string]string{
		"3 dns a.example - no-allow-rule":                        "a.example 3× no-allow-rule  (--allow a.example)",
		"1 tls b.example 192.0.2.1:443 sni-denied":               "b.example 1× sni-denied  (--allow b.example)",
		"2 tcp - 192.0.2.7:22 unresolved-address":                "192.0.2.7:22 2× unresolved-address  (--allow 192.0.2.7:22)",
		"2 tcp db.example 192.0.2.7:5432 not-identified":         "db.example 2× not-identified  (--allow db.example:5432)",
		"2 udp ntp.example 192.0.2.7:123 udp-denied":             "ntp.example 2× udp-denied  (--allow ntp.example:123/udp)",
		"1 icmp p.example - no-allow-rule":                       "p.example 1× no-allow-rule  (--allow p.example)",
		"1 icmp - 192.0.2.7 unresolved-address":                  "192.0.2.7 1× unresolved-address  (--allow 192.0.2.7)",
		"1 icmp - 127.0.0.1 unresolved-address":                  "127.0.0.1 1× unresolved-address",
		"1 icmp corp.example 10.1.2.3 address-class":             "corp.example 1× address-class  (--allow corp.example@10.1.2.3)",
		"2 dns host.sb.internal - no-allow-rule":                 "host.sb.internal 2× no-allow-rule  (--allow host.sb.internal:PORT)",
		"2 dns host.sb.internal - deny-rule":                     "host.sb.internal 2× deny-rule",
		"2 tcp host.sb.internal 198.18.1.0:80 no-allow-rule":     "host.sb.internal 2× no-allow-rule  (--allow host.sb.internal:80)",
		"1 dns bad.example - deny-rule":                          "bad.example 1× deny-rule",
		"1 tcp - 169.254.169.254:80 unresolved-address":          "169.254.169.254:80 1× unresolved-address",
		"1 http corp.example 10.1.2.3:80 address-class":          "corp.example 1× address-class  (--allow corp.example:80@10.1.2.3)",
		`9 tls two\x20words 192.0.2.1:443 sni-malformed`:         `two\x20words 9× sni-malformed`,
		"9 tls two words 192.0.2.1:443 sni-malformed":            "",
		"1 dns evil\n.example - bad-name":                        "",
		`1 dns evil\x0a.example - bad-name`:                      `evil\x0a.example 1× bad-name`,
		`1 dns \x2d - bad-name`:                                  `\x2d 1× bad-name`,
		"9 frame - - frame-ethertype":                            "",
		"9 frame x.example 192.0.2.1:1 frame-source":             "",
		"9 dns - - dns-malformed":                                "",
		"x dns a.example - no-allow-rule":                        "",
		"1 dns a.example":                                        "",
		"":                                                       "",
		"1 dns " + strings.Repeat("n", 300) + " - no-allow-rule": strings.Repeat("n", 253) + "… 1× no-allow-rule",
	} {
		got := ""
		for _, tt := range parseTotals([]string{line}) {
			if tt.worthTelling() {
				got = tt.String()
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestSummary: a run that was refused something says so at its end, in bounds,
// and with nothing that acts on a terminal.
func TestSummary(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run("img", "--", "true").want(t, 0, "!refused") // nothing was
	s.put("totals", "9 frame - - frame-ethertype\n")
	s.run("img", "--", "true").want(t, 0, "!refused")
	s.put("totals", "9 frame - - frame-ethertype\n2 dns a.example - no-allow-rule\n1 dns b\\x1b[2\\x4a.example - bad-name\n1 dns evil\\x0a.example - bad-name\n")
	s.run("img", "--", "sh", "-c", "exit 3").want(t, 3,
		" has every line):\nsb-run:   a.example 2× no-allow-rule  (--allow a.example)\nsb-run:   b\\x1b[2\\x4a.example 1× bad-name\nsb-run:   evil\\x0a.example 1× bad-name\n", "!frame", "!more")
	var many strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&many, "%d dns x%d.example - no-allow-rule\n", 1000-n, n)
	}
	s.put("totals", many.String())
	got := s.run("img", "--", "true")
	got.want(t, 0, "sb-run:   x19.example 981× no-allow-rule  (--allow x19.example)\n", "sb-run:   and 980 more: sb-policy log --denied --summary img-", "!x20.example")
	// A run that was cut short tells it too.
	s.put("totals", "2 dns a.example - no-allow-rule\n")
	s.run("img", "--", "@die").want(t, 125, "sb-run:   a.example 2× no-allow-rule")
}
