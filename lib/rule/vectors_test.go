package rule

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"sb/lib/say"
)

// vectors reads a file of lines with n columns, " | " between them.
func vectors(t *testing.T, file string, n int, each func(col []string, line int)) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for line := 1; s.Scan(); line++ {
		if s.Text() == "" || strings.HasPrefix(s.Text(), "#") {
			continue
		}
		col := strings.SplitN(s.Text(), " | ", n)
		if len(col) != n {
			t.Fatalf("%s:%d: %d columns, want %d", file, line, len(col), n)
		}
		each(col, line)
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
}

// unquote reads a column or a word that may be a Go string.
func unquote(t *testing.T, s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return text
}

// full is an error with its hints, as rules.txt has it.
func full(err error) string {
	var e *say.Error
	text := err.Error()
	if errors.As(err, &e) {
		for _, h := range e.Hints {
			text += " (" + h + ")"
		}
	}
	return text
}

func TestRules(t *testing.T) {
	vectors(t, "rules.txt", 3, func(col []string, line int) {
		text := unquote(t, col[1])
		r, err := parse(text, col[0] == "deny")
		if want, ok := strings.CutPrefix(col[2], "! "); ok {
			switch {
			case err == nil:
				t.Errorf("rules.txt:%d: %q is read as %q, want the error %q", line, text, r, want)
			case !strings.Contains(full(err), want):
				t.Errorf("rules.txt:%d: error %s, want %q in it", line, full(err), want)
			case say.Code(err) != say.CodeUsage:
				t.Errorf("rules.txt:%d: the error's code is %d", line, say.Code(err))
			}
			return
		}
		want, warning, warns := strings.Cut(strings.TrimPrefix(col[2], "= "), " ~ ")
		switch {
		case err != nil:
			t.Errorf("rules.txt:%d: %s, want %q", line, full(err), want)
		case r.String() != want:
			t.Errorf("rules.txt:%d: %q is read as %q, want %q", line, text, r, want)
		case !warns && r.Warning() != "", !strings.Contains(r.Warning(), warning):
			t.Errorf("rules.txt:%d: warning %q, want %q", line, r.Warning(), warning)
		}
	})
}

func TestNames(t *testing.T) {
	vectors(t, "names.txt", 3, func(col []string, line int) {
		n, err := Name{}, error(nil)
		switch col[0] {
		case "text":
			n, err = ParseName(unquote(t, col[1]))
		case "labels":
			n, err = NameFromLabels(labels(t, col[1]))
		default:
			t.Fatalf("names.txt:%d: %q is neither text nor labels", line, col[0])
		}
		if want, ok := strings.CutPrefix(col[2], "! "); ok {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("names.txt:%d: %q, error %v, want the error %q", line, n, err, want)
			}
			if n != (Name{}) {
				t.Errorf("names.txt:%d: a name beside an error: %q", line, n)
			}
			return
		}
		if want := strings.TrimPrefix(col[2], "= "); err != nil || n.String() != want {
			t.Errorf("names.txt:%d: %q, %v, want %q", line, n, err, want)
		}
	})
}

func labels(t *testing.T, text string) (labels [][]byte) {
	if text == "-" {
		return nil
	}
	for text != "" {
		word := text
		if strings.HasPrefix(text, `"`) {
			var err error
			if word, err = strconv.QuotedPrefix(text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		} else if i := strings.IndexByte(text, ' '); i >= 0 {
			word = text[:i]
		}
		labels = append(labels, []byte(unquote(t, word)))
		text = strings.TrimPrefix(text[len(word):], " ")
	}
	return labels
}
