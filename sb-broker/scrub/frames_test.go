package scrub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// frame is one of a server's: its first byte, and its content.
func frame(first byte, text string) string {
	head := []byte{first}
	switch n := len(text); {
	case n < 126:
		head = append(head, byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	return string(head) + text
}

const (
	whole, begins, goesOn, ends = 0x81, 0x01, 0x00, 0x80
	ping                        = 0x89
)

// TestE12Frames: a secret in a message is found, in however many frames that is and
// however those are read; nothing of it is handed out. Messages without one pass as
// they are.
func TestE12Frames(t *testing.T) {
	s := testSet()
	long := strings.Repeat("x", 70_000)
	for at := range len(secret) {
		a, b := secret[:at], secret[at:]
		for name, text := range map[string]string{
			"two frames":     frame(begins, "it is "+a) + frame(ends, b+"."),
			"a ping between": frame(begins, "it is "+a) + frame(ping, "are you there?") + frame(ends, b),
			"an empty one":   frame(begins, a) + frame(goesOn, "") + frame(ends, b),
			"long ones":      frame(begins, long+a) + frame(ends, b+long),
			"a later one":    frame(whole, "hello") + frame(0x82, a+b),
			"in a ping":      frame(whole, "hello") + frame(ping, secret),
		} {
			if name == "long ones" && at%7 != 0 {
				continue
			}
			for way, r := range map[string]io.Reader{"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
				got, err := io.ReadAll(NewFrames(func() *Set { return s }, r))
				if !errors.Is(err, ErrSecret) || !strings.HasPrefix(text, string(got)) || at > 0 && bytes.HasSuffix(got, []byte(secret[:1])) {
					t.Fatalf("%s at %d, %s: %d bytes, %v: …%q", name, at, way, len(got), err, got[max(0, len(got)-20):])
				}
			}
		}
	}
	for _, text := range []string{
		frame(begins, "sk-real-") + frame(ends, "ly?") + frame(ping, "") + frame(whole, long) + frame(whole, strings.Repeat("y", 300)) + frame(0x88, "\x03\xe8"),
		frame(whole, secret[:9]) + frame(whole, secret[9:]), // two messages are two texts
		frame(whole, "cut off")[:5],
		"",
	} {
		got, err := io.ReadAll(NewFrames(func() *Set { return s }, iotest.OneByteReader(strings.NewReader(text))))
		if err != nil || string(got) != text {
			t.Errorf("%.40q: %.40q, %v", text, got, err)
		}
	}
}

// TestE9Frames: what is no frame that can be read ends the connection.
func TestE9Frames(t *testing.T) {
	for name, text := range map[string]string{
		"an extension": frame(0xc1, "x"), "a mask": "\x81\x81abcdx", "a ping in parts": frame(0x09, "x"), "a long ping": frame(ping, strings.Repeat("x", 126)),
	} {
		got, err := io.ReadAll(NewFrames(testSet, strings.NewReader(frame(whole, "hello")+text)))
		if !errors.Is(err, ErrFrames) || !strings.HasPrefix(string(got), frame(whole, "hello")) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestE9HeldFrames: what waits for the rest of what may be a secret is bounded,
// whatever a server sends meanwhile; less than that waits, and is handed out.
func TestE9HeldFrames(t *testing.T) {
	for name, between := range map[string]string{"pings": frame(ping, "are you there?"), "empty frames": frame(goesOn, "")} {
		begin := frame(begins, "it is "+secret[:9])
		some := begin + strings.Repeat(between, 1000) + frame(ends, "no secret")
		if got, err := io.ReadAll(NewFrames(testSet, strings.NewReader(some))); err != nil || string(got) != some {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(some), err)
		}
		r := NewFrames(testSet, io.MultiReader(strings.NewReader(begin), io.LimitReader(forever(between), 8<<20)))
		got, err := io.ReadAll(r)
		if !errors.Is(err, ErrFrames) || !strings.HasPrefix(begin, string(got)) || cap(r.raw) > 1<<20 {
			t.Errorf("%s without end: %d bytes, %v; %d are held", name, len(got), err, cap(r.raw))
		}
	}
}

// forever is a text again and again.
type forever string

func (f forever) Read(p []byte) (n int, err error) {
	for len(p)-n >= len(f) {
		n += copy(p[n:], f)
	}
	return n, nil
}

// TestPromptFrames: the end of a message is not held back, whatever it may begin.
func TestPromptFrames(t *testing.T) {
	pr, pw := io.Pipe()
	r := NewFrames(testSet, pr)
	for _, text := range []string{frame(whole, "sk-real"), frame(begins, "a"), frame(ends, "sk-"), frame(ping, "sk-")} {
		go pw.Write([]byte(text))
		got := make([]byte, len(text))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// FuzzFrames: whatever a server sends, what is handed out is its beginning, and no
// more; and it does not depend on how it is read.
func FuzzFrames(f *testing.F) {
	f.Add(frame(begins, "sk-re")+frame(ends, "al-"), uint8(3))
	f.Add(frame(begins, secret[:5])+frame(ping, "")+frame(ends, secret[5:]), uint8(1))
	f.Add("\x81\xff", uint8(1))
	s := testSet()
	f.Fuzz(func(t *testing.T, text string, piece uint8) {
		var parts []io.Reader
		for rest := text; rest != ""; {
			n := min(len(rest), 1+int(piece))
			parts, rest = append(parts, strings.NewReader(rest[:n])), rest[n:]
		}
		got, err := io.ReadAll(NewFrames(func() *Set { return s }, io.MultiReader(parts...)))
		again, errAgain := io.ReadAll(NewFrames(func() *Set { return s }, strings.NewReader(text)))
		if !strings.HasPrefix(text, string(got)) || err == nil && string(got) != text || err != errAgain || len(got) > len(again) && err == nil {
			t.Fatalf("%q: %q, %v; at once %q, %v", text, got, err, again, errAgain)
		}
	})
}
