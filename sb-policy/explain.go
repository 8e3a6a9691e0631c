package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"sb/lib/reason"
	"sb/lib/say"
)

func explain(args []string) error {
	fs := say.Flags("sb-policy explain", "[CODE]", "Says what a reason code of the audit log means and what can be done about it.\nWithout one it lists them all.")
	asJSON := fs.Bool("json", false, "print one JSON object a line")
	if err := say.Parse(fs, args); err != nil {
		return err
	}
	entries := reason.All()
	switch fs.NArg() {
	case 0:
	case 1:
		e, ok := reason.Explain(reason.Code(fs.Arg(0)))
		if !ok {
			return say.WithHint(say.Usage("explain %q: there is no such reason code", fs.Arg(0)), "sb-policy explain lists them")
		}
		if !*asJSON {
			return printEntry(e)
		}
		entries = []reason.Entry{e}
	default:
		return say.Usage("explain takes one code, not %d", fs.NArg())
	}
	return printTable(entries, *asJSON)
}

func printEntry(e reason.Entry) error {
	text := e.What + "\n"
	if e.Fix != "" {
		text += e.Fix + "\n"
	}
	_, err := os.Stdout.WriteString(text)
	return err
}

func printTable(entries []reason.Entry, asJSON bool) error {
	w := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(w)
	for _, e := range entries {
		if asJSON {
			enc.Encode(struct {
				Code reason.Code `json:"code"`
				What string      `json:"what"`
				Fix  string      `json:"fix,omitempty"`
			}{e.Code, e.What, e.Fix})
			continue
		}
		fmt.Fprintf(w, "%-20s %s\n", e.Code, e.What)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}
