package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/say"
)

func readLog(args []string) error {
	fs := say.Flags("sb-policy log", "[SANDBOX|FILE]…",
		"Prints the lines of the audit logs of sandboxes or of files, or of stdin; with\nnothing to read there (a terminal, /dev/null), of the newest sandbox. A line that is none is named on stderr,\nand the exit code is 1.")
	tail := fs.IntP("tail", "n", 0, "only the last `N` lines")
	follow := fs.BoolP("follow", "f", false, "go on with the lines that are written to FILE, through its rotation")
	denied := fs.BoolP("denied", "d", false, "only what was refused")
	asJSON := fs.Bool("json", false, "print one JSON object a line")
	summary := fs.Bool("summary", false, "print totals for each verdict, name and reason, the most frequent first")
	if err := say.Parse(fs, args); err != nil {
		return err
	}
	switch {
	case *tail < 0:
		return say.Usage("--tail=%d: a number of lines is 0 or more", *tail)
	case *follow && *summary:
		return say.Usage("--summary needs the end of the log, --follow has none")
	case *follow && fs.NArg() > 1:
		return say.Usage("--follow takes one file, not %d", fs.NArg())
	}
	files, err := logFiles(fs.Args())
	if err != nil {
		return err
	}
	if *follow && len(files) > 1 {
		files = files[len(files)-1:] // the older generation of a sandbox's log
	}
	out := &printer{w: bufio.NewWriter(os.Stdout), json: *asJSON, denied: *denied, last: -1}
	// A sandbox ends; a file that was named goes on as long as it is wanted.
	out.untilEnd = len(files) > 0 && !slices.Contains(fs.Args(), files[0])
	if fs.Changed("tail") {
		out.last = *tail
	}
	if *summary {
		out.totals = totals{}
	}
	err = out.run(files, *follow)
	if err == nil && out.bad {
		return say.Exit(say.CodeFailed)
	}
	return err
}

// printer takes lines and prints what was asked for.
type printer struct {
	w      *bufio.Writer
	json   bool
	denied bool
	last   int      // print only so many of the lines up to the end; -1 prints them as they come
	kept   []string // those lines
	totals totals   // not nil: count instead of printing
	live   bool     // print each line at once

	untilEnd, ended bool // follow no further than the end of the gate; it has come
	bad             bool // a line was none
}

func (p *printer) run(files []string, follow bool) error {
	if !follow {
		return p.readAll(files)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it even if stdout is stuck
	if len(files) == 1 && isFile(files[0]) {
		return p.follow(ctx, files[0])
	}
	p.live = true // a pipe has its own end, and no rotation
	done := make(chan error, 1)
	go func() { done <- p.readAll(files) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}

// isFile says whether name can be read again: a regular file, or none yet.
func isFile(name string) bool {
	st, err := os.Stat(name)
	return err != nil || st.Mode().IsRegular()
}

func (p *printer) readAll(files []string) error {
	if len(files) == 0 {
		if err := p.read("stdin", os.Stdin); err != nil {
			return err
		}
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		err = p.read(name, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return p.end()
}

func (p *printer) read(name string, r io.Reader) error {
	s := &splitter{name: name, each: p.line}
	if _, err := io.Copy(s, r); err != nil {
		return fmt.Errorf("read the log %s: %w", name, err)
	}
	return s.end()
}

// line takes one line, without its newline.
func (p *printer) line(origin string, text []byte) error {
	l, err := audit.Parse(text)
	if err != nil {
		say.Warn("%s: %v", origin, err)
		p.bad = true
		return nil
	}
	p.ended = l.Verdict == audit.Note && l.Reason == reason.GateEnd
	if p.denied && l.Verdict != audit.Deny {
		return nil
	}
	if p.totals != nil {
		p.totals.add(l)
		return nil
	}
	out := string(text)
	if p.json {
		out = asObject(out)
	}
	if p.last < 0 {
		return p.print(out)
	}
	if p.kept = append(p.kept, out); len(p.kept) > 2*p.last {
		p.kept = append([]string(nil), p.kept[len(p.kept)-p.last:]...)
	}
	return nil
}

func (p *printer) print(line string) error {
	p.w.WriteString(line)
	err := p.w.WriteByte('\n')
	if p.live && err == nil {
		err = p.w.Flush()
	}
	if err != nil {
		return fmt.Errorf("print the log: %w", err)
	}
	return nil
}

// end prints what was kept back to the end of the log.
func (p *printer) end() error {
	for _, line := range p.kept[max(0, len(p.kept)-max(p.last, 0)):] {
		if err := p.print(line); err != nil {
			return err
		}
	}
	p.kept, p.last = nil, -1
	if p.totals != nil {
		for _, line := range p.totals.lines(p.json) {
			if err := p.print(line); err != nil {
				return err
			}
		}
	}
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("print the log: %w", err)
	}
	return nil
}

// asObject is a line as JSON. Its fields stay as they are in the line: what a
// guest sent is escaped there, and no byte of it is lost.
func asObject(line string) string {
	f := strings.Split(line, " ")
	for i := range f[:7] {
		if f[i] == "-" {
			f[i] = ""
		}
	}
	words := map[string]any{}
	for _, w := range f[7:] {
		key, value, _ := strings.Cut(w, "=")
		words[key] = value
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			words[key] = n
		}
	}
	b, _ := json.Marshal(struct {
		Time    string         `json:"time"`
		Verdict string         `json:"verdict"`
		Gate    string         `json:"gate"`
		Name    string         `json:"name,omitempty"`
		Address string         `json:"address,omitempty"`
		Reason  string         `json:"reason,omitempty"`
		Rule    string         `json:"rule,omitempty"`
		Words   map[string]any `json:"words,omitempty"`
	}{f[0], f[1], f[2], f[3], f[4], f[5], f[6], words})
	return string(b)
}
