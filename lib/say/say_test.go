package say

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestReport(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{pflag.ErrHelp, 0, ""},
		{errors.New("open x: no"), 1, "sb: error: open x: no\n"},
		{Usage("bad %s", "flag"), 2, "sb: error: bad flag\n"},
		{Exit(7), 7, ""},
		{fmt.Errorf("run: %w", Exit(3)), 3, ""},
		{WithHint(Usage("x"), "do %d", 1), 2, "sb: error: x\nsb: hint: do 1\n"},
		{WithHint(WithHint(errors.New("x"), "a"), "b"), 1, "sb: error: x\nsb: hint: a\nsb: hint: b\n"},
		{WithCode(WithHint(errors.New("x"), "a"), 125), 125, "sb: error: x\nsb: hint: a\n"},
		{errors.New("two\nlines"), 1, "sb: error: two\nsb: error: lines\n"},
		{errors.New("esc \x1b[2J"), 1, "sb: error: esc \\x1b[2J\n"},
	} {
		var b strings.Builder
		if code := Report(&b, c.err); code != c.code || b.String() != c.want {
			t.Errorf("Report(%v) = %d, %q; want %d, %q", c.err, code, b.String(), c.code, c.want)
		}
	}
}

func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 日本":    "plain é 日本",
		"\x1b]52;c;A\a": `\x1b]52;c;A\x07`,
		"\u009b31m":     `\u009b31m`,
		"a\u202eb":      `a\u202eb`,
		"a\u2028b":      `a\u2028b`,
		"bad \xff\xc3(": `bad \xff\xc3(`,
		"tab\tnul\x00":  "tab\tnul\\x00",
	} {
		if got := Safe(in); got != want {
			t.Errorf("Safe(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestNames: a name with a line end makes no line of its own, which would stand as a
// message of ours; a format and an error may have several lines.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		format string
		arg    any
		want   string
	}{
		{"wrote %s", "a\nsb: hint: run this", "wrote a\\x0asb: hint: run this\n"},
		{"wrote %-4s|", "a\nb", "wrote a\\x0ab|\n"},
		{"wrote %.1s", "a\nb", "wrote a\n"},
		{"wrote %q", "a\nb", "wrote \"a\\nb\"\n"},
		{"one\ntwo %s", "x", "one\nsb: two x\n"},
		{"%v", errors.Join(errors.New("a"), errors.New("b")), "a\nsb: b\n"},
	} {
		var b strings.Builder
		line(&b, "", sprintf(c.format, c.arg))
		if want := "sb: " + c.want; b.String() != want {
			t.Errorf("%q of %q: %q, want %q", c.format, c.arg, b.String(), want)
		}
	}
}

func TestVerbs(t *testing.T) {
	ran := ""
	verbs := []Verb{{Name: "pull", Args: "REF", Text: "x", Run: func(a []string) error { ran = strings.Join(a, ","); return nil }}}
	if err := Verbs("sb-x", "", verbs, []string{"pull", "a", "--b"}); err != nil || ran != "a,--b" {
		t.Errorf("pull: %v, ran %q", err, ran)
	}
	for _, args := range [][]string{nil, {"push"}} {
		if err := Verbs("sb-x", "", verbs, args); Code(err) != CodeUsage {
			t.Errorf("Verbs(%q): code %d, want %d", args, Code(err), CodeUsage)
		}
	}
}
