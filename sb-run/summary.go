package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/say"
)

// total is how often one thing was refused, as the gate counted it.
type total struct {
	n       int64
	gate    audit.Gate
	name    string
	address string
	why     reason.Code
}

// totals asks the gate what was refused.
func (s *sandbox) totals(hurry context.Context) []total {
	m, err := s.gate.ask(hurry, ctl.Message{{Key: "ask", Value: "totals"}})
	if err != nil || m.Get("error") != "" {
		say.Note("what was refused is not known, for the gate did not say: sb-policy log --denied")
		return nil
	}
	return parseTotals(m.All("total"))
}

// parseTotals reads them as the gate writes them: N GATE NAME ADDRESS REASON, the
// name and the address as fields of the log, since a name is the guest's.
func parseTotals(lines []string) (all []total) {
	for _, text := range lines {
		f := strings.Split(text, " ")
		if len(f) != 5 {
			continue
		}
		n, err := strconv.ParseInt(f[0], 10, 64)
		name, badName := audit.ParseField(f[2])
		address, badAddress := audit.ParseField(f[3])
		if err != nil || badName != nil || badAddress != nil {
			continue
		}
		all = append(all, total{n, audit.Gate(f[1]), name, address, reason.Code(f[4])})
	}
	return all
}

// The bounds of the list at the end of a run: its lines, and the bytes of a name.
const (
	maxShown     = 20
	maxShownName = 253 // the longest that a host can have
)

// printTotals lists what a user can do something about: what was refused, how
// often, and the flag that would allow it.
func printTotals(name string, totals []total) {
	var lines []string
	left := 0
	for _, t := range totals {
		if !t.worthTelling() {
			continue
		}
		if len(lines) == maxShown {
			left++
			continue
		}
		lines = append(lines, t.String())
	}
	if len(lines) == 0 {
		return
	}
	say.Note("refused (sb-policy log %s has every line):", name)
	for _, l := range lines {
		say.Note("  %s", l)
	}
	if left > 0 {
		say.Note("  and %d more: sb-policy log --denied --summary %s", left, name)
	}
}

// worthTelling leaves out what every system sends and nobody asked for.
func (t total) worthTelling() bool {
	return t.gate != audit.Frame && t.what() != ""
}

// what is the thing that was refused: a name, an address where there is none.
func (t total) what() string {
	if t.name != "" {
		return t.name
	}
	return t.address
}

func (t total) String() string {
	what, more := t.what(), ""
	if len(what) > maxShownName {
		what, more = what[:maxShownName], "…"
	}
	// As in the log: a guest's blanks and newlines would pass for words of ours.
	text := fmt.Sprintf("%s%s %d× %s", audit.Field(what), more, t.n, t.why)
	r := t.suggest()
	if r == "" && t.name == rule.HostName && t.why == reason.NoAllowRule {
		r = rule.HostName + ":PORT" // asked for by its name, and not yet dialled
	}
	if r != "" {
		text += "  (--allow " + r + ")"
	}
	return text
}

// suggest is the rule that would allow it.
func (t total) suggest() string {
	at, err := netip.ParseAddrPort(t.address)
	if err != nil { // of a ping the log has the address alone
		a, _ := netip.ParseAddr(t.address)
		at = netip.AddrPortFrom(a, 0)
	}
	p := rule.TCP
	switch t.gate {
	case audit.UDP:
		p = rule.UDP
	case audit.ICMP:
		p = rule.ICMP
	}
	target := t.name
	if target == "" {
		target = at.Addr().String()
	}
	return rule.Suggest(target, p, at.Port(), t.why, at.Addr())
}
