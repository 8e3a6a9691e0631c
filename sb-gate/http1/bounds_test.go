package http1

import (
	"bufio"
	"errors"
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
