package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/say"
)

// checker answers questions one by one. The exit code is that of the worst
// answer so far.
type checker struct {
	set     *rule.Set
	json    bool
	explain bool
	code    int
}

func check(args []string) error {
	fs := say.Flags("sb-policy check", "[--allow RULE]… [--deny RULE]… [-f FILE]… [HOST[:PORT][/udp]]…",
		"Says for each host whether the rules allow it, by which of them, and what may pass.\n"+
			"Hosts come from stdin, one a line, when none are given. Exits 0 if all are\nallowed, 1 if one is denied, 2 if something was not understood.")
	allow := fs.StringArray("allow", nil, "allow `RULE` (repeatable)")
	deny := fs.StringArray("deny", nil, "deny `RULE`, which comes before every allow (repeatable)")
	files := fs.StringArrayP("file", "f", nil, "read rules from `FILE`, one a line, or from a manifest (.toml); - is stdin (repeatable)")
	asJSON := fs.Bool("json", false, "print one JSON object a line")
	explain := fs.Bool("explain", false, "say on stderr why a host is denied, and which rule would allow it")
	if err := say.Parse(fs, args); err != nil {
		return err
	}
	sources := []rule.Source{{Origin: "--allow", Allow: *allow}, {Origin: "--deny", Deny: *deny}}
	for _, file := range *files {
		if file == "-" && fs.NArg() == 0 {
			return say.WithHint(say.Usage("read the rules from stdin: the hosts come from there"), "give the hosts as arguments")
		}
		more, err := readRules(file)
		if err != nil {
			return say.WithCode(err, say.CodeUsage)
		}
		sources = append(sources, more...)
	}
	set, err := rule.Load(sources...)
	if err != nil {
		return err
	}
	for _, w := range set.Warnings() {
		say.Warn("%s", w)
	}
	c := &checker{set: set, json: *asJSON, explain: *explain}
	if fs.NArg() > 0 {
		err = c.args(fs.Args())
	} else {
		err = c.lines(os.Stdin)
	}
	if err != nil {
		return err
	}
	return say.Exit(c.code)
}

func (c *checker) args(hosts []string) error {
	for _, host := range hosts {
		if err := c.answer(host, ""); err != nil {
			return err
		}
	}
	return nil
}

// lines reads hosts, one a line; blank lines and what follows a # do not count.
func (c *checker) lines(r io.Reader) error {
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := c.answer(line, fmt.Sprintf("stdin:%d: ", n)); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return say.WithCode(fmt.Errorf("read the hosts from stdin: %w", err), say.CodeUsage)
	}
	return nil
}

// answer prints the line for one host. A host that is not understood has a
// message in its place, on stderr, and the others go on. The error is of stdout.
func (c *checker) answer(text, origin string) error {
	q, err := ask(text)
	if err != nil {
		if origin != "" {
			err = fmt.Errorf("%s%w", origin, err)
		}
		c.code = max(c.code, say.Report(os.Stderr, err))
		return nil
	}
	v, admits := q.judge(c.set)
	if !v.Allow {
		c.code = max(c.code, say.CodeFailed)
		c.hint(q, v)
	}
	if _, err := os.Stdout.WriteString(c.line(q, v, admits)); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return nil
}

func (c *checker) line(q question, v rule.Verdict, admits []string) string {
	if c.json {
		b, _ := json.Marshal(struct {
			Host    string      `json:"host"`
			Allow   bool        `json:"allow"`
			Rule    string      `json:"rule,omitempty"`
			Reason  reason.Code `json:"reason"`
			Admits  []string    `json:"admits,omitempty"`
			Suggest string      `json:"suggest,omitempty"`
		}{q.text, v.Allow, v.Rule, v.Reason, admits, q.suggest(v)})
		return string(b) + "\n"
	}
	if v.Allow {
		return fmt.Sprintf("allow %s %s %s\n", say.Safe(q.text), v.Rule, strings.Join(admits, ","))
	}
	by := v.Rule
	if by == "" {
		by = "-"
	}
	return fmt.Sprintf("deny %s %s %s\n", say.Safe(q.text), by, v.Reason)
}

// hint says what is easily overlooked, and with --explain everything.
func (c *checker) hint(q question, v rule.Verdict) {
	if port := q.allowedAt(c.set, v); port != "" {
		say.Hint("%s: %s", q.text, port)
		return
	}
	if !c.explain {
		return
	}
	e, _ := reason.Explain(v.Reason)
	text := e.What
	if v.Rule != "" {
		text += " The rule is " + v.Rule + "."
	}
	if r := q.suggest(v); r != "" {
		say.Hint("%s: %s --allow '%s' would allow it", q.text, text, r)
		return
	}
	say.Hint("%s: %s", q.text, strings.TrimSpace(text+" "+e.Fix))
}
