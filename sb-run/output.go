package main

import (
	"os"
	"strings"
	"time"

	"sb/lib/say"
	"sb/sb-run/vt"

	"golang.org/x/term"
)

// The words for what is done with what a guest writes to a terminal.
const (
	terminalFilter = "filter"
	terminalRaw    = "raw"
)

// checkTerminal refuses other words, under the name of the flag or the key. None is
// the default.
func checkTerminal(name, word string) error {
	if word != "" && word != terminalFilter && word != terminalRaw {
		return say.Usage("%s: %q is neither filter nor raw", name, word)
	}
	return nil
}

// output is where the command's output goes. It keeps its error apart from
// those of the stream. A terminal gets what the filter lets through, whether the
// command has one too or not: it is the host's terminal that obeys.
type output struct {
	f        *os.File
	terminal bool
	filter   *vt.Filter // nil: all is passed on
	leftOut  vt.Counts  // valid after close
	err      error      // valid when the command is done
}

func newOutput(f *os.File, raw bool) *output {
	o := &output{f: f, terminal: term.IsTerminal(int(f.Fd()))}
	if o.terminal && !raw {
		o.filter = vt.New(f, time.Now)
	}
	return o
}

func (o *output) Write(b []byte) (n int, err error) {
	if o.filter != nil {
		n, o.err = o.filter.Write(b)
	} else {
		n, o.err = o.f.Write(b)
	}
	return n, o.err
}

// closeTime is how long a terminal that takes nothing is waited for.
const closeTime = time.Second

// closeAll undoes what the command left terminals in. What it writes after that is
// not passed on.
func closeAll(outs ...*output) {
	for _, o := range outs {
		if o.filter == nil {
			continue
		}
		left := make(chan vt.Counts, 1)
		go func() {
			c, _ := o.filter.Close() // of a terminal that is gone
			left <- c
		}()
		select {
		case o.leftOut = <-left:
		case <-time.After(closeTime):
		}
	}
}

// sayLeftOut tells what terminals were not given.
func sayLeftOut(outs ...*output) {
	var all vt.Counts
	for _, o := range outs {
		all.Add(o.leftOut)
	}
	if text := all.String(); text != "" {
		say.Note("the terminal was spared %s (--terminal=raw passes everything)", text)
	}
}

// describe tells a command of our terminal: what it understands, and that it shows
// UTF-8. What the environment has already stands.
func describe(env map[string]string) {
	if env["TERM"] == "" && os.Getenv("TERM") != "" {
		env["TERM"] = os.Getenv("TERM")
	}
	if _, ok := env["COLORTERM"]; !ok && os.Getenv("COLORTERM") != "" {
		env["COLORTERM"] = os.Getenv("COLORTERM")
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if _, ok := env[name]; ok {
			return
		}
	}
	if hostUTF8() {
		env["LANG"] = "C.UTF-8" // ours need not be there
	}
}

// hostUTF8 reports whether our locale's characters are UTF-8.
func hostUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ReplaceAll(strings.ToLower(v), "-", "")
			return strings.Contains(v, "utf8")
		}
	}
	return false
}
