package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sb/lib/fd"
)

func pair(t *testing.T) (a, b *Conn) {
	near, far, err := fd.Pair("ctl", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = NewConn(near); err != nil {
		t.Fatal(err)
	}
	if b, err = NewConn(far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestMessages(t *testing.T) {
	a, b := pair(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	want := Message{{"ask", "rules"}, {"allow", "a=b"}, {"allow", ""}}
	go func() {
		a.Send(want)
		a.Send(Message{{"ask", "audit"}}, f)
		a.Close()
	}()
	got, files, err := b.Receive()
	if err != nil || !reflect.DeepEqual(got, want) || len(files) != 0 {
		t.Fatalf("%v, %d files, %v; want %v", got, len(files), err, want)
	}
	if got.Get("ask") != "rules" || len(got.All("allow")) != 2 {
		t.Errorf("Get, All: %q %q", got.Get("ask"), got.All("allow"))
	}
	got, files, err = b.Receive()
	if err != nil || got.Get("ask") != "audit" || len(files) != 1 {
		t.Fatalf("%v, %d files, %v", got, len(files), err)
	}
	files[0].WriteString("line\n")
	files[0].Close()
	if text, _ := os.ReadFile(f.Name()); string(text) != "line\n" {
		t.Errorf("the file that came holds %q", text)
	}
	if _, _, err := b.Receive(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestLargeMessage(t *testing.T) {
	a, b := pair(t)
	var m Message
	for range 10000 {
		m = append(m, Pair{"allow", "*.some-long-name.of-a-rule.example.com:443"})
	}
	go a.Send(m)
	if got, _, err := b.Receive(); err != nil || len(got) != len(m) {
		t.Fatalf("%d lines, %v", len(got), err)
	}
}

// A message that does not end is given up when it is too long.
func TestEndless(t *testing.T) {
	a, b := pair(t)
	go a.c.Write([]byte(strings.Repeat("a=b\n", (MaxMessage+100<<10)/4)))
	if _, _, err := b.Receive(); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
	if len(b.buf) > MaxMessage+64<<10 {
		t.Errorf("%d bytes are held", len(b.buf))
	}
	c, d := pair(t) // the control
	go c.Send(Message{{"ask", "alive"}})
	if m, _, err := d.Receive(); err != nil || m.Get("ask") != "alive" {
		t.Errorf("%v, %v", m, err)
	}
}

func TestRefused(t *testing.T) {
	a, b := pair(t)
	for _, m := range []Message{{{"", "x"}}, {{"a=b", "x"}}, {{"a", "x\ny"}}, {{"a", strings.Repeat("x", MaxMessage)}}} {
		if err := a.Send(m); err == nil {
			t.Errorf("sent %.20q", m)
		}
	}
	go a.c.Write([]byte("no line\n\n"))
	if m, _, err := b.Receive(); err == nil {
		t.Errorf("received %v", m)
	}
}

// TestAnswer: an answer that no wire can carry is an error to the one who asked,
// who may go on asking; only the end of the wire is one to the one who answers.
func TestAnswer(t *testing.T) {
	a, b := pair(t)
	for _, c := range []struct {
		m     Message
		err   error
		error string
	}{
		{Message{{"ok", "totals"}}, nil, ""},
		{nil, errors.New("no such question"), "no such question"},
		{nil, errors.New("two\nlines\n\n"), "two lines  "},
		{nil, errors.New(strings.Repeat("x", 5<<20)), strings.Repeat("x", maxError)},
		{Message{{"total", "a\nb"}}, nil, `send on ctl: "total"="a\nb" is no line`},
		{Message{{"total", strings.Repeat("x", MaxMessage)}}, nil, fmt.Sprintf("send on ctl: %d bytes, at most %d", MaxMessage+8, MaxMessage)},
	} {
		if err := a.Answer(c.m, c.err); err != nil {
			t.Fatal(err)
		}
		got, _, err := b.Receive()
		if err != nil || got.Get("error") != c.error || c.error == "" && !reflect.DeepEqual(got, c.m) {
			t.Errorf("%.40q, %.40q: %.100q, %v", c.m, c.err, got, err)
		}
	}
	b.Close()
	if a.Answer(Message{{"ok", "alive"}}, nil) == nil {
		t.Error("an answer to nobody")
	}
}

// Whatever the bytes: what is taken for a message is one that Send writes in the
// same words.
func FuzzReceive(f *testing.F) {
	f.Add("ask=rules\nallow=a=b\nallow=")
	f.Add("files=1\n=x")
	f.Add("a")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parse(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for i, p := range m {
			if i > 0 {
				again.WriteByte('\n')
			}
			if p.Key == "" || strings.ContainsAny(p.Key, "=\n") || strings.Contains(p.Value, "\n") {
				t.Fatalf("%q gave the line %q", text, p)
			}
			again.WriteString(p.Key + "=" + p.Value)
		}
		if again.String() != text {
			t.Errorf("%q came back as %q", text, again.String())
		}
	})
}

// TestSayAlive: a tool says that it lives, and answers nothing else.
func TestSayAlive(t *testing.T) {
	c, mine := pair(t)
	ended := make(chan error, 1)
	go func() { ended <- mine.SayAlive() }()
	for _, q := range []struct{ ask, key string }{{"alive", "ok"}, {"rules", "error"}, {"alive", "ok"}} {
		if err := c.Send(Message{{"ask", q.ask}}); err != nil {
			t.Fatal(err)
		}
		m, _, err := c.Receive()
		if err != nil || m.Get(q.key) == "" || len(m) != 1 {
			t.Errorf("%s: %v, %v", q.ask, m, err)
		}
	}
	c.Close()
	if err := <-ended; err == nil {
		t.Error("it goes on without its wire")
	}
}
