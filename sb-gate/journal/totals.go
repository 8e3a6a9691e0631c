package journal

import (
	"sort"
	"strings"

	"sb/lib/audit"
	"sb/lib/reason"
)

// maxTotals bounds how many (name, address, reason) are counted apart; what
// comes beyond is counted by reason alone.
const maxTotals = 1000

// Total is how often one thing was refused.
type Total struct {
	Gate    audit.Gate
	Name    string
	Address string
	Reason  reason.Code
	N       int64
}

type totals struct{ n map[Total]int64 }

func newTotals() totals { return totals{n: map[Total]int64{}} }

func (t totals) add(line audit.Line) {
	if line.Verdict != audit.Deny {
		return
	}
	k := Total{Gate: line.Gate, Name: line.Name, Address: line.Address, Reason: line.Reason}
	if _, ok := t.n[k]; !ok {
		if len(t.n) >= maxTotals {
			k = Total{Gate: line.Gate, Reason: line.Reason}
		}
		k = k.own()
	}
	t.n[k] += line.Count()
}

// own is the total in memory of its own, as a kind's is.
func (t Total) own() Total {
	t.Name, t.Address, t.Reason = strings.Clone(t.Name), strings.Clone(t.Address), reason.Code(strings.Clone(string(t.Reason)))
	return t
}

func (t totals) list() []Total {
	all := make([]Total, 0, len(t.n))
	for k, n := range t.n {
		k.N = n
		all = append(all, k)
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.N != b.N {
			return a.N > b.N
		}
		return a.Name+a.Address+string(a.Reason) < b.Name+b.Address+string(b.Reason)
	})
	return all
}
