package http1

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"sb/lib/reason"
)

// A head that is as long as it may be is read, and none that is longer.
func TestHeadBounds(t *testing.T) {
	const begin = "GET / HTTP/1.1\r\nHost: a.example\r\n"
	long := func(n int) string {
		return begin + "X: " + strings.Repeat("a", n-len(begin)-len("X: \r\n\r\n")) + "\r\n\r\n"
	}
	many := func(n int) string { return begin + strings.Repeat("X: y\r\n", n-1) + "\r\n" }
	for _, c := range []struct {
		text string
		good bool
	}{{long(MaxHead), true}, {long(MaxHead + 1), false}, {many(MaxFields), true}, {many(MaxFields + 1), false}} {
		req, err := Read(bufio.NewReader(strings.NewReader(c.text)))
		var no Refused
		switch {
		case c.good && (err != nil || len(req.Head) != len(c.text)):
			t.Errorf("%d bytes: %v", len(c.text), err)
		case !c.good && (!errors.As(err, &no) || no.Code != reason.HTTPTooLong):
			t.Errorf("%d bytes: %v, want %s", len(c.text), err, reason.HTTPTooLong)
		}
	}
}

// Whatever a server answers to an upgrade: what is passed on is the beginning of
// it, the rest is still there to be read, and it is bounded.
func FuzzSwitched(f *testing.F) {
	f.Add("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nraw")
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\n\nbody")
	f.Add("\r\n\r\nHTTP/1.1 101")
	f.Fuzz(func(t *testing.T, answer string) {
		var passed strings.Builder
		r := bufio.NewReader(strings.NewReader(answer))
		switched, err := Switched(&passed, r)
		rest, rerr := io.ReadAll(r)
		if rerr != nil || passed.String()+string(rest) != answer {
			t.Fatalf("%q: %q was passed and %q is left, %v", answer, passed.String(), rest, err)
		}
		if switched && (err != nil || !strings.Contains(passed.String(), " 101")) {
			t.Errorf("%q: taken for a switch, %v", answer, err)
		}
	})
}
