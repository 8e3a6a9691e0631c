package keep

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sb/lib/binding"
)

// exchange is a wire whose one side has said everything.
type exchange struct {
	*strings.Reader
	bytes.Buffer
}

func (e *exchange) Read(p []byte) (int, error) { return e.Reader.Read(p) }

// FuzzAnswer: whatever is asked, a value is handed out for the names that were given
// alone, and as often as it was asked for.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"get a\n", "get b\n", "get a", "get  a\n", "GET a\n", "get a\nget a\n", "get a\r\n", "get \n", "\n", strings.Repeat("a", 200)} {
		f.Add(s)
	}
	k := &keeper{services: binding.BuiltIn(), dir: f.TempDir(), given: map[int][]byte{7: []byte("value-of-a"), 8: []byte("value-of-b")},
		settings: binding.Settings{Sources: map[string]binding.Source{"a": {Kind: "fd", Words: []string{"7"}}, "b": {Kind: "fd", Words: []string{"8"}}}}}
	f.Fuzz(func(t *testing.T, asked string) {
		e := &exchange{Reader: strings.NewReader(asked)}
		k.answer(context.Background(), e, []string{"a"})
		got := e.Buffer.String()
		if strings.Contains(got, "value-of-b") {
			t.Errorf("%q: %q", asked, got)
		}
		if n := strings.Count(got, "value-of-a"); n > strings.Count(asked, "get a\n") {
			t.Errorf("%q: the value %d times", asked, n)
		}
	})
}

// FuzzLogin: a sign-in of any form is read or refused; one that is read is written
// back with the new tokens, and read again.
func FuzzLogin(f *testing.F) {
	for _, s := range []string{`{"claudeAiOauth":{"accessToken":"a","expiresAt":1},"x":{"y":[1e400]}}`, `{"tokens":{"access_token":"a.eyJleHAiOjF9.c"}}`, `{}`, `null`, `{"claudeAiOauth":null}`, `{"tokens":[]}`, `[`} {
		f.Add([]byte(s))
	}
	then := time.UnixMilli(4070908800000)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []func([]byte) (*tokens, error){parseClaude, parseCodex} {
			l, err := parse(text)
			if err != nil {
				continue
			}
			out, err := l.write("new-access", "new-refresh", "", then)
			if err != nil || !json.Valid(out) {
				t.Fatalf("%q: %q, %v", text, out, err)
			}
			again, err := parse(out)
			if err != nil || again.access != "new-access" || again.refresh != "new-refresh" || again.account != l.account {
				t.Errorf("%q: %q: %+v, %v", text, out, again, err)
			}
		}
	})
}
