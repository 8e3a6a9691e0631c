package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/reason"
	"sb/lib/rule"
)

// control answers sb-run until its end of the wire is closed.
func (g *gate) control(c *ctl.Conn) error {
	for {
		m, files, err := c.Receive()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.Answer(g.obey(m, files)); err != nil {
			return err
		}
	}
}

// obey does what is asked and takes over the files that came along.
func (g *gate) obey(m ctl.Message, files []*os.File) (ctl.Message, error) {
	ask := m.Get("ask")
	answer := ctl.Message{{Key: "ok", Value: ask}}
	if ask == "audit" && len(files) == 1 {
		g.log.Replace(files[0])
		return answer, nil
	}
	for _, f := range files {
		f.Close()
	}
	switch ask {
	case "alive":
		return answer, nil
	case "totals":
		for _, t := range g.log.Totals() {
			answer = append(answer, ctl.Pair{Key: "total", Value: fmt.Sprintf("%d %s %s %s %s", t.N, t.Gate, audit.Field(t.Name), audit.Field(t.Address), t.Reason)})
		}
		return answer, nil
	case "rules":
		n, err := g.setRules(m)
		return append(answer, ctl.Pair{Key: "generation", Value: strconv.FormatUint(n, 10)}), err
	case "audit":
		return nil, fmt.Errorf("audit: %d files came, not one", len(files))
	}
	return nil, fmt.Errorf("no such question: %q", ask)
}

// setRules puts rules in force and cuts the flows that they allow no more. A
// rule that is not understood leaves everything as it was.
func (g *gate) setRules(m ctl.Message) (generation uint64, err error) {
	n, err := strconv.ParseUint(m.Get("generation"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("rules: %w", err)
	}
	if old := g.policy.Load(); old != nil && n <= old.generation {
		return 0, fmt.Errorf("rules: generation %d is not after %d", n, old.generation)
	}
	set, err := rule.Load(rule.Source{Origin: "rules", Allow: m.All("allow"), Deny: m.All("deny")})
	if err != nil {
		return 0, err
	}
	g.policy.Store(&policy{set, n})
	g.log.Record(audit.Line{Verdict: audit.Note, Gate: audit.Run, Reason: reason.PolicyChanged, Words: []audit.Word{audit.Int("generation", int64(n))}})
	g.flows.recheck()
	return n, nil
}
