package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// end is one end of a conversation whose other end was written before.
type end struct {
	io.Reader
	io.Writer
}

func reading(text string) *Conn { return NewConn(end{strings.NewReader(text), io.Discard}) }

func TestAsk(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{`{"done":true}`, ""},
		{`{"done":false,"error":"no disk"}`, `the guest says: "no disk"`},
		{`{"done":false,"error":"a\u001b[2Jb"}`, `the guest says: "a\x1b[2Jb"`},
		{`{}`, `the guest says: ""`},
		{`{"done":1}`, "cannot unmarshal"},
		{`[]`, "cannot unmarshal"},
		{``, "unexpected end of JSON"},
	} {
		var sent bytes.Buffer
		err := NewConn(end{strings.NewReader(c.answer + "\n"), &sent}).Ask(Request{Do: "sync"})
		if got := sent.String(); got != "{\"do\":\"sync\"}\n" {
			t.Errorf("sent %q", got)
		}
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("answer %s: %v, want %s", c.answer, err, c.want)
		}
	}
	long, _ := json.Marshal(Answer{Error: strings.Repeat("x", 100_000)})
	if err := reading(string(long) + "\n").Ask(Request{}); err == nil || len(err.Error()) > 600 {
		t.Errorf("a long error makes a message of %d bytes", len(err.Error()))
	}
}

func TestRoundTrip(t *testing.T) {
	a, b := net.Pipe()
	want := Request{Do: "configure", Time: 5, Entropy: []byte{0, 1, '\n', 255},
		Configure: &Configure{Hostname: "h", Shares: []Share{{Port: "sb.share0", Target: "/x\ny"}, {Tag: "t", Target: "/z", ReadOnly: true}}}}
	go NewConn(a).Send(want)
	var got Request
	if err := NewConn(b).Receive(&got); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(want)
	y, _ := json.Marshal(got)
	if !bytes.Equal(x, y) {
		t.Errorf("got %s, want %s", y, x)
	}
}

// endless is a guest that never ends its line.
type endless struct{ n int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	e.n += len(b)
	return len(b), nil
}

// A line is bounded, whatever comes.
func TestBounds(t *testing.T) {
	line := func(n int) string { return `"` + strings.Repeat("x", n-3) + "\"\n" } // n bytes
	var s string
	if err := reading(line(MaxLine)).Receive(&s); err != nil || len(s) != MaxLine-3 {
		t.Errorf("a line of MaxLine: %d bytes, %v", len(s), err)
	}
	if err := reading(line(MaxLine + 1)).Receive(&s); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("one byte more: %v", err)
	}
	e := &endless{}
	if err := NewConn(end{e, io.Discard}).Receive(&s); err == nil || e.n > MaxLine+64<<10 {
		t.Errorf("an endless line: %v after %d bytes", err, e.n)
	}
	if err := reading(`{"done":true}`).Receive(&s); !errors.Is(err, io.EOF) {
		t.Errorf("a line that is cut: %v", err)
	}
	c := reading("{\"do\":\"a\"}\n{\"do\":\"b\"}\n")
	for _, want := range []string{"a", "b"} {
		var r Request
		if err := c.Receive(&r); err != nil || r.Do != want {
			t.Errorf("%+v, %v; want %s", r, err, want)
		}
	}
}

// Whatever a guest sends, the host reads no further than the line, takes no
// answer for done that does not say so, and makes a short message of the rest.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"{\"done\":true}\n", "{\"done\":false,\"error\":\"x\"}\n", "\n", "{", "[[[[[[\n", "{\"done\":true}{\"done\":true}\n", "{\"DONE\":true}\n\x00", "null\nnull\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := NewConn(end{bytes.NewReader(b), io.Discard})
		err := c.Ask(Request{Do: "sync"})
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if err == nil {
			var a Answer
			if !whole || json.Unmarshal(line, &a) != nil || !a.Done {
				t.Errorf("done for %q", b)
			}
		} else if len(err.Error()) > 4000 {
			t.Errorf("a message of %d bytes", len(err.Error()))
		}
		if whole && len(line) < MaxLine {
			if left, _ := io.ReadAll(c.r); !bytes.Equal(left, rest) {
				t.Errorf("read past the line: %q is left of %q", left, rest)
			}
		}
	})
}
