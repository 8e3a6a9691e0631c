package rule

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"sb/lib/say"
)

// fault is what is wrong with a text that a user wrote, where, and what to write.
type fault struct {
	at   int // byte offset of the character at fault, plus 1; 0 if it is no single one
	why  string
	hint string
}

func faultf(format string, args ...any) *fault {
	return &fault{why: fmt.Sprintf(format, args...)}
}

// charFault blames the character at byte offset at.
func charFault(at int, why string) *fault { return &fault{at: at + 1, why: why} }

// write adds what would be right.
func (f *fault) write(format string, args ...any) *fault {
	f.hint = "write " + fmt.Sprintf(format, args...)
	return f
}

// moved is the fault of a text that stands n bytes into a longer one.
func (f *fault) moved(n int) *fault {
	if f != nil && f.at > 0 {
		f.at += n
	}
	return f
}

// maxShown bounds how much of a text an error repeats, in bytes.
const maxShown = 300

// err makes the error about text, which is a kind ("rule", "name"). It is a
// usage error, with the hint.
func (f *fault) err(kind, text string) error {
	where := ""
	if f.at > 0 && f.at <= len(text) {
		r, n := utf8.DecodeRuneInString(text[f.at-1:])
		shown := strconv.QuoteRune(r)
		if r == utf8.RuneError && n == 1 {
			shown = fmt.Sprintf(`'\x%02x'`, text[f.at-1])
		}
		where = fmt.Sprintf("%s (character %d) ", shown, utf8.RuneCountInString(text[:f.at-1])+1)
	}
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	err := say.Usage("%s %q: %s%s", kind, text, where, f.why)
	if f.hint != "" {
		return say.WithHint(err, "%s", f.hint)
	}
	return err
}
