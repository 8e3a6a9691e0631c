package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// progress is one line on the terminal that people look at, written over and
// over. Where stderr is no terminal, or NO_COLOR asks for plain text, there is
// none.
type progress struct {
	mu    sync.Mutex
	name  string
	done  int64
	total int64 // 0 if it is not known
	shown time.Time
	on    bool
}

func newProgress(name string, layers []layer) *progress {
	p := &progress{name: say.Safe(name), on: isTerminal(os.Stderr) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	for _, l := range layers {
		if l.size < 0 {
			p.total = 0
			return p
		}
		p.total += l.size
	}
	return p
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// width is that of the terminal in columns, 0 if it does not say.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// reader counts what is read of r.
func (p *progress) reader(r io.Reader) io.Reader { return counted{p, r} }

type counted struct {
	p *progress
	r io.Reader
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.p.add(int64(n))
	return n, err
}

func (p *progress) add(n int64) {
	if !p.on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if time.Since(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = time.Now()
	of := ""
	if p.total > 0 {
		of = " of " + megabytes(p.total)
	}
	fmt.Fprint(os.Stderr, "\r\x1b[K", p.line(width(os.Stderr), megabytes(p.done)+of))
}

// line fits into one of the terminal's lines: of a long name the end is shown.
func (p *progress) line(width int, figures string) string {
	name := []rune(p.name)
	if room := max(0, width-1-len(figures)-len(": ")); width > 0 && len(name) > room {
		name = name[len(name)-room:]
	}
	return string(name) + ": " + figures
}

// end takes the line away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on && !p.shown.IsZero() {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	p.on = false
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
