// Package say is how every sb tool speaks to people and ends.
//
// stdout is the product of a tool; people read stderr, one line a message:
//
//	sb-gate: error: take frames: descriptor 3 is not open
//	sb-gate: hint: start it with --frames=N, N being one end of a datagram pair
//
// Messages begin in lower case, end without a full stop, and say what was being
// done, to what, and why it failed. What to do next is a hint, on a line of its
// own. Bytes that could act on a terminal are escaped here, so that a name that
// came from a guest, a registry or a file can be put in a message as it is.
package say

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// Version is the release this tool was built as. All tools of a release are
// built, tested and installed together; sb-run refuses a child of another one.
// It is set by the Makefile with -ldflags -X.
var Version = "0.1.0-dev"

// The exit codes of a filter, as in grep: yes or done, no or failed, not
// understood. sb-run has its own (125 and above), which it passes in an Error.
const (
	CodeOK     = 0
	CodeFailed = 1
	CodeUsage  = 2
)

// Error is an error that knows the exit code it deserves and what to do next.
type Error struct {
	Code  int   // exit code of the process
	Err   error // nil: end with Code and print nothing
	Hints []string
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Usage is an error about how the command was called: exit code 2.
func Usage(format string, args ...any) error {
	return &Error{Code: CodeUsage, Err: fmt.Errorf(format, args...)}
}

// Exit ends the process with code and prints nothing: the answer was already given.
func Exit(code int) error { return &Error{Code: code} }

// WithHint adds to err what the reader can do about it. The exit code stays.
func WithHint(err error, format string, args ...any) error {
	hint := fmt.Sprintf(format, args...)
	var e *Error
	if errors.As(err, &e) {
		return &Error{Code: e.Code, Err: err, Hints: append(e.Hints[:len(e.Hints):len(e.Hints)], hint)}
	}
	return &Error{Code: CodeFailed, Err: err, Hints: []string{hint}}
}

// WithCode gives err another exit code; its hints stay.
func WithCode(err error, code int) error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Code: code, Err: err, Hints: e.Hints}
	}
	return &Error{Code: code, Err: err}
}

// Code is the exit code that err asks for: 0 for nil and for a request for help.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return CodeOK
	case errors.As(err, &e):
		return e.Code
	}
	return CodeFailed
}

// tool is the name in front of every message. Main sets it once, before any
// goroutine is started.
var tool = "sb"

// Main runs a command and ends the process: the one place that calls os.Exit.
// Every main is the line say.Main("sb-x", run).
func Main(name string, run func(args []string) error) {
	tool = name
	os.Exit(Report(os.Stderr, run(os.Args[1:])))
}

// Report writes err and its hints to w and returns the exit code.
func Report(w io.Writer, err error) int {
	code := Code(err)
	var e *Error
	if err == nil || errors.Is(err, pflag.ErrHelp) || errors.As(err, &e) && e.Err == nil {
		return code
	}
	line(w, "error", err.Error())
	if e != nil {
		for _, h := range e.Hints {
			line(w, "hint", h)
		}
	}
	return code
}

// Warn tells people something they should know although the work goes on.
func Warn(format string, args ...any) { line(os.Stderr, "warning", sprintf(format, args...)) }

// Hint tells people what they can do.
func Hint(format string, args ...any) { line(os.Stderr, "hint", sprintf(format, args...)) }

// Note is for progress and facts: a line without a rank.
func Note(format string, args ...any) { line(os.Stderr, "", sprintf(format, args...)) }

// sprintf keeps every string to the line that it is put into: the name of a file
// may have line ends, and what comes behind one would stand as a message of ours.
func sprintf(format string, args ...any) string {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = oneLine(s) // and no copy: go vet would not know this for Sprintf any more
		}
	}
	return fmt.Sprintf(format, args...)
}

// oneLine is a string whose line ends are escaped; %q does that itself.
type oneLine string

// Format implements fmt.Formatter.
func (s oneLine) Format(f fmt.State, verb rune) {
	text := string(s)
	if verb != 'q' {
		text = strings.ReplaceAll(text, "\n", `\x0a`)
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// line writes one message in one write, so that the messages of several
// processes on one terminal do not mix within a line.
func line(w io.Writer, rank, text string) {
	if rank != "" {
		rank += ": "
	}
	var b strings.Builder
	for l := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString(tool + ": " + rank + Safe(l) + "\n")
	}
	io.WriteString(w, b.String())
}

// Safe returns s with every rune that could act on a terminal or reorder a line
// written as an escape: control characters (C0, C1, DEL), bidirectional and
// other format characters, line separators, and bytes that are no UTF-8.
func Safe(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\t' || r == ' ' || unicode.IsPrint(r):
			b.WriteString(s[i : i+n])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}
