package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sb/lib/audit"
)

// totals counts decisions: a line may stand for many.
type totals map[[3]string]int64

// add counts l under its verdict, name and reason, as they stand in the line.
func (t totals) add(l audit.Line) {
	f := strings.Split(l.String(), " ")
	t[[3]string{f[1], f[3], f[5]}] += l.Count()
}

// lines are the totals, the highest first.
func (t totals) lines(asJSON bool) []string {
	keys := make([][3]string, 0, len(t))
	for k := range t {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [3]string) int {
		return cmp.Or(cmp.Compare(t[b], t[a]), slices.Compare(a[:], b[:]))
	})
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = fmt.Sprintf("%d %s %s %s", t[k], k[0], k[1], k[2])
		if asJSON {
			b, _ := json.Marshal(struct {
				Count   int64  `json:"count"`
				Verdict string `json:"verdict"`
				Name    string `json:"name,omitempty"`
				Reason  string `json:"reason"`
			}{t[k], k[0], strings.TrimPrefix(k[1], "-"), k[2]})
			out[i] = string(b)
		}
	}
	return out
}
