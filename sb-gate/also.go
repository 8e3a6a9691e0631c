package main

import (
	"maps"
	"slices"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"
)

// maxAlso bounds the names besides its own that a flow's bytes may be for.
const maxAlso = 64

// also is another name than the handle's that a flow's bytes are for.
type also struct {
	rule   string // that allows it where the flow leads
	listed bool   // its line is in the log
}

// carries notes that the flow's bytes are for another name: from here on a change
// of the rules about it reaches this flow too. False: it carries too many.
func (f *flow) carries(n rule.Name) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.also[n] == nil && len(f.also) >= maxAlso {
		return false
	}
	if f.also == nil {
		f.also = map[rule.Name]*also{}
	}
	if f.also[n] == nil {
		f.also[n] = &also{}
	}
	return true
}

// allowedBy notes the rule that allows such a name.
func (f *flow) allowedBy(n rule.Name, rule string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.also[n].rule = rule
}

// others are the names that it carries.
func (f *flow) others() []rule.Name {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.also))
}

// listOthers writes the line of each of those names, once, before the bytes that
// are for it go out. False: one could not be written, or the flow is over.
func (f *flow) listOthers(gate audit.Gate) bool {
	f.mu.Lock()
	ok := !f.over
	for n, a := range f.also {
		if ok && !a.listed {
			line := f.line(audit.Allow, reason.AllowRule)
			line.Gate, line.Name, line.Rule = gate, n.String(), a.rule
			a.listed = f.g.log.Allow(line)
			ok = a.listed
		}
	}
	f.mu.Unlock()
	if !ok {
		f.deny(gate, reason.AuditUnavailable, "", "")
	}
	return ok
}
