package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sb/lib/fd"
)

// text is n bytes that no part of is like another, near enough.
func text(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%07d\n", i)
	}
	return b.Bytes()[:n]
}

// What a machine says is kept up to a bound: the beginning, and the end, with
// the number of bytes between them.
func TestConsoleBounds(t *testing.T) {
	const both = maxConsole + maxTail
	for _, size := range []int{0, 1, maxConsole - 1, maxConsole, maxConsole + 1, both - 1, both, both + 1, 2*both + 7} {
		for _, chunk := range []int{size + 1, 4096, 100_001} {
			path := filepath.Join(t.TempDir(), "console.log")
			c, err := openConsole(path)
			if err != nil {
				t.Fatal(err)
			}
			said := text(size)
			for rest := said; len(rest) > 0; {
				n := min(chunk, len(rest))
				if got, err := c.Write(rest[:n]); got != n || err != nil {
					t.Fatalf("Write = %d, %v", got, err)
				}
				rest = rest[n:]
			}
			if want := string(said[max(0, size-tailShown):]); c.tail() != want {
				t.Errorf("%d bytes by %d: the tail is %d bytes, want %d", size, chunk, len(c.tail()), len(want))
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			want := said
			if size > maxConsole {
				end := said[max(maxConsole, size-maxTail):]
				want = fmt.Appendf(nil, "%s\n[%d bytes left out]\n%s", said[:maxConsole], size-maxConsole-len(end), end)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes by %d: the file has %d bytes, want %d (%v)", size, chunk, len(got), len(want), err)
			}
		}
	}
}

// A machine does not stand still because its console cannot be kept.
func TestConsoleFileFails(t *testing.T) {
	c, err := openConsole("/dev/full")
	if err != nil {
		t.Skipf("SKIP: no /dev/full here: %v", err)
	}
	if n, err := c.Write([]byte("words")); n != 5 || err != nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	if c.tail() != "words" {
		t.Errorf("the tail is %q", c.tail())
	}
	if _, err := openConsole(filepath.Join(t.TempDir(), "no", "console.log")); err == nil || !strings.Contains(err.Error(), "console") {
		t.Errorf("a file that cannot be made: %v", err)
	}
}

// The last words come into the file; who holds the other end open is not waited
// for longer than they may take.
func TestConsoleKeep(t *testing.T) {
	for _, held := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "console.log")
		c, err := openConsole(path)
		if err != nil {
			t.Fatal(err)
		}
		near, far, err := fd.Pair("console", fd.Stream)
		if err != nil {
			t.Fatal(err)
		}
		if near, err = pollable(near); err != nil {
			t.Fatal(err)
		}
		end := c.keep(near)
		said := text(300_000)
		if _, err := far.Write(said); err != nil {
			t.Fatal(err)
		}
		if !held {
			far.Close()
		}
		start := time.Now()
		end()
		if took := time.Since(start); held && took < lastWords || !held && took >= lastWords {
			t.Errorf("held %v: it took %v", held, took)
		}
		far.Close()
		if got, _ := os.ReadFile(path); !bytes.Equal(got, said) {
			t.Errorf("held %v: %d bytes of %d", held, len(got), len(said))
		}
	}
}

// What the guest says does not go where a link leads.
func TestConsoleLink(t *testing.T) {
	dir := t.TempDir()
	victim, link := filepath.Join(dir, "victim"), filepath.Join(dir, "console.log")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if _, err := openConsole(link); err == nil {
		t.Error("a link was opened")
	}
	if text, _ := os.ReadFile(victim); string(text) != "precious" {
		t.Errorf("the file is %q", text)
	}
	c, err := openConsole(victim)
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	c.Close()
}
