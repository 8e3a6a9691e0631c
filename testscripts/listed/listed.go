// Package listed compares what a capture outside saw with what an audit log says:
// each flow must be in the log with its bytes, and each of the log's on the wire.
package listed

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/testscripts/capture"
)

// entry is a flow as the log has it.
type entry struct {
	line     audit.Line
	protos   string // that it may be
	up, down int64
	silent   bool // an attempt: it may have left nothing
	lost     bool // its gate died, so that its bytes are not known
}

// Compare returns what does not agree; nothing if all does.
func Compare(flows []capture.Flow, log []audit.Line) (wrong []string) {
	entries, wrong := entries(log)
	// Who needs no entry comes last, so that it takes none from another.
	flows = slices.Clone(flows)
	rank := map[bool]int{true: 1}
	slices.SortStableFunc(flows, func(a, b capture.Flow) int { return cmp.Compare(rank[unborn(a, log)], rank[unborn(b, log)]) })
	by := match(flows, entries)
	used := make([]bool, len(entries))
	for i, f := range flows {
		if by[i] < 0 && !unborn(f, log) {
			wrong = append(wrong, fmt.Sprintf("not in the log: %s; the log has of it:%s", f, near(f, entries)))
		} else if by[i] >= 0 {
			used[by[i]] = true
		}
		if f.Proto == "tcp" && f.Open && !f.Ended() {
			wrong = append(wrong, fmt.Sprintf("not ended: %s", f))
		}
	}
	for i, e := range entries {
		if !used[i] && !e.silent {
			wrong = append(wrong, fmt.Sprintf("not seen outside: %s", e.line))
		}
	}
	return wrong
}

// unborn: a connection that a gate was opening, or had refused, when it died, so
// that its lines were not written. Nothing of the guest's left on it.
func unborn(f capture.Flow, log []audit.Line) bool {
	return f.Proto == "tcp" && f.Up == 0 && slices.ContainsFunc(log, func(l audit.Line) bool {
		return l.Verdict == audit.Note && l.Reason == reason.GateDied && f.Began.Before(l.Time)
	})
}

// near are the entries of the same remote end, for the message.
func near(f capture.Flow, entries []entry) (text string) {
	for _, e := range entries {
		if e.remote() == f.Remote {
			text += "\n\t" + e.line.String()
		}
	}
	return text
}

// entries reads the log. What was opened and not closed is wrong, unless a gate
// died meanwhile.
func entries(log []audit.Line) (all []entry, wrong []string) {
	open := map[string][]audit.Line{}
	for _, l := range log {
		k := fmt.Sprintf("%s %s %s", l.Gate, l.Name, l.Address)
		switch {
		case l.Verdict == audit.Note && l.Reason == reason.GateDied:
			for k, lines := range open {
				for _, l := range lines {
					all = append(all, entry{line: l, protos: string(l.Gate), lost: true})
				}
				delete(open, k)
			}
		case l.Gate == audit.Look:
			all = append(all, entry{line: l, protos: "udp tcp", up: number(l, "up"), down: number(l, "down"), silent: l.Reason != reason.Done})
		case l.Gate == audit.DNS, l.Verdict == audit.Deny, l.Verdict == audit.Note:
		case l.Verdict == audit.Dial && attempt[l.Reason]:
			all = append(all, entry{line: l, protos: "tcp", silent: true})
		case l.Verdict == audit.Close && len(open[k]) == 0:
			wrong = append(wrong, fmt.Sprintf("closed and never opened: %s", l))
		case l.Verdict == audit.Close:
			open[k] = open[k][1:]
			all = append(all, entry{line: l, protos: string(l.Gate), up: number(l, "up"), down: number(l, "down")})
		case l.Verdict == audit.Allow, l.Verdict == audit.Dial:
			if l.Gate == audit.TCP || l.Gate == audit.UDP || l.Gate == audit.ICMP {
				open[k] = append(open[k], l)
			}
		}
	}
	for _, lines := range open {
		for _, l := range lines {
			wrong = append(wrong, fmt.Sprintf("opened and never closed: %s", l))
		}
	}
	return all, wrong
}

// attempt is why a dial came to nothing before there was a connection.
var attempt = map[reason.Code]bool{reason.ConnectRefused: true, reason.ConnectTimeout: true, reason.ConnectUnreachable: true, reason.ConnectFailed: true, reason.DescriptorsOut: true}

func number(l audit.Line, key string) int64 {
	n, err := strconv.ParseInt(l.Word(key), 10, 64)
	if err != nil {
		return -1 // which fits no flow
	}
	return n
}

// remote is the outer end of an entry.
func (e entry) remote() netip.AddrPort {
	if a, err := netip.ParseAddr(e.line.Address); err == nil {
		return netip.AddrPortFrom(a, 0)
	}
	at, _ := netip.ParseAddrPort(e.line.Address)
	return at
}

// fits says whether a flow can be what an entry says. Where both sides ended it,
// and of datagrams, the bytes are equal; where one was cut, at most the entry's.
func fits(f capture.Flow, e entry) bool {
	switch {
	case f.Stray || f.Remote != e.remote() || !strings.Contains(e.protos, f.Proto):
		return false
	case e.line.Verdict == audit.Dial && e.line.Reason != reason.ConnectFailed && e.silent && f.Open:
		return false // it says that there was no connection
	case e.lost: // nor is when it ended, where nothing of the guest's left
		return !f.FIN || f.Up == 0
	case f.FIN || f.Proto != "tcp":
		return f.Up == e.up && f.Down == e.down
	}
	return f.Up <= e.up && f.Down <= e.down
}

// match gives each flow an entry of its own, as many as can have one: augmenting
// paths, so that one which has an entry goes on having one when a later flow gets its
// own. Attempts, which may have left nothing, are for the flows that are left
// over. by[i] is the entry of flow i, -1 none.
func match(flows []capture.Flow, entries []entry) (by []int) {
	of := make([]int, len(entries))
	for i := range of {
		of[i] = -1
	}
	var take func(i int, seen []bool) bool
	take = func(i int, seen []bool) bool {
		for j, e := range entries {
			if seen[j] || !fits(flows[i], e) {
				continue
			}
			seen[j] = true
			if of[j] < 0 || take(of[j], seen) {
				of[j] = i
				return true
			}
		}
		return false
	}
	for _, attempts := range []bool{false, true} {
		for i := range flows {
			if slices.Contains(of, i) {
				continue
			}
			seen := make([]bool, len(entries))
			for j, e := range entries {
				seen[j] = e.silent && !attempts
			}
			take(i, seen)
		}
	}
	by = make([]int, len(flows))
	for i := range by {
		by[i] = -1
	}
	for j, i := range of {
		if i >= 0 {
			by[i] = j
		}
	}
	return by
}
