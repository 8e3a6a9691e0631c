package keep

import (
	"errors"
	"io"
	"strings"
	"testing"

	"sb/lib/binding"
)

// What is typed, key by key, at the question for a secret.
func TestReadHidden(t *testing.T) {
	long := strings.Repeat("a", 3*binding.MaxSecret)
	for typed, want := range map[string]string{
		"sesame\r": "sesame", "sesame\nmore": "sesame", "sesame\x04": "sesame", "\r": "",
		"sesamx\x7fe\r": "sesame", "x\x7f\x7f\x08sesame\r": "sesame", "wrong\x15sesame\r": "sesame",
		long[:binding.MaxSecret] + "\r": long[:binding.MaxSecret],
		long + "\r":                     long[:most],
	} {
		if got, err := readHidden(strings.NewReader(typed)); err != nil || string(got) != want {
			t.Errorf("of %.40q it reads %.40q, %v", typed, got, err)
		}
	}
	for typed, want := range map[string]error{
		"\x04": errNothing, "sesame\x15\x04": errNothing, "": io.EOF, "sesame": io.EOF,
		"ses\x03ame\r": errInterrupted,
	} {
		if got, err := readHidden(strings.NewReader(typed)); !errors.Is(err, want) || got != nil {
			t.Errorf("of %q it reads %q, %v; want %v", typed, got, err, want)
		}
	}
}
