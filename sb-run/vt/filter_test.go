package vt

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// at is a clock that stands.
func at() time.Time { return time.Unix(1e9, 0) }

// written is what becomes of b, written in pieces of that size.
func written(t *testing.T, b string, size int) (out, reset string, c Counts) {
	t.Helper()
	var buf bytes.Buffer
	f := New(&buf, at)
	for len(b) > 0 {
		n := min(size, len(b))
		if k, err := f.Write([]byte(b[:n])); k != n || err != nil {
			t.Fatalf("%d of %d bytes: %v", k, n, err)
		}
		b = b[n:]
	}
	out = buf.String()
	buf.Reset()
	c, err := f.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out, buf.String(), c
}

type vector struct{ where, what, result, input string }

func vectors(t testing.TB, file string) (all []vector) {
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		what, rest, _ := strings.Cut(line, " | ")
		at := strings.LastIndex(rest, ` | "`)
		if at < 0 {
			t.Fatalf("%s:%d: not three columns", file, i+1)
		}
		input, err := strconv.Unquote(rest[at+3:])
		if err != nil {
			t.Fatalf("%s:%d: %v", file, i+1, err)
		}
		all = append(all, vector{file + ":" + strconv.Itoa(i+1), what, rest[:at], input})
	}
	return all
}

// expect takes the result of a vector apart: what is written, and what is counted.
func (v vector) expect(t *testing.T) (out, counts string) {
	switch {
	case v.result == "pass":
		return v.input, ""
	case v.result == "drop":
		return "", ""
	case strings.HasPrefix(v.result, "drop "):
		return "", "1 " + v.result[5:]
	}
	quoted, err := strconv.QuotedPrefix(v.result)
	if err != nil {
		t.Fatalf("%s: %q: %v", v.where, v.result, err)
	}
	out, _ = strconv.Unquote(quoted)
	return out, strings.TrimSpace(v.result[len(quoted):])
}

// TestSequences: what passes, and what is left out, however it is split.
func TestSequences(t *testing.T) {
	vs := vectors(t, "sequences.txt")
	if len(vs) < 120 {
		t.Errorf("%d vectors", len(vs))
	}
	for _, v := range vs {
		out, counts := v.expect(t)
		for _, size := range []int{1 << 20, 1, 2, 3, 5} {
			got, _, c := written(t, "a"+v.input+"b", size)
			if got != "a"+out+"b" || sorted(c.String()) != sorted(counts) {
				t.Errorf("%s: %s: in pieces of %d:\n got %q, %s\nwant %q, %s", v.where, v.what, size, got, c, "a"+out+"b", counts)
				break
			}
		}
	}
}

func sorted(list string) string {
	words := strings.Split(list, ", ")
	for range words {
		for i := 1; i < len(words); i++ {
			if words[i] < words[i-1] {
				words[i], words[i-1] = words[i-1], words[i]
			}
		}
	}
	return strings.Join(words, ", ")
}

// TestResets: at the end exactly that is undone which was left.
func TestResets(t *testing.T) {
	for _, v := range vectors(t, "resets.txt") {
		want, err := strconv.Unquote(v.result)
		if err != nil {
			t.Fatalf("%s: %v", v.where, err)
		}
		_, reset, _ := written(t, v.input, 1<<20)
		if reset != want {
			t.Errorf("%s: %s: %q, want %q", v.where, v.what, reset, want)
		}
		if _, again, _ := written(t, v.input+reset, 1<<20); again != "" && !strings.HasPrefix(v.what, "a sequence") {
			t.Errorf("%s: %s: after its reset %q is left", v.where, v.what, again)
		}
	}
}

// TestPrintable8: eight bytes at a time are looked at as one at a time are.
func TestPrintable8(t *testing.T) {
	for at := range 8 {
		for c := range 256 {
			for _, beside := range []byte{0, 0x20, 0x7e, 0x7f, 0x80, 0xff} {
				b := []byte("        ")
				b[(at+1)%8] = beside
				b[at] = byte(c)
				want := true
				for _, c := range b {
					want = want && c >= 0x20 && c < 0x7f
				}
				if got := printable8(binary.LittleEndian.Uint64(b)); got != want {
					t.Fatalf("%q: %v", b, got)
				}
			}
		}
	}
}

// TestHeld: text is not held back, and of what has not come whole nothing is shown.
func TestHeld(t *testing.T) {
	var buf bytes.Buffer
	f := New(&buf, at)
	for _, step := range []struct{ write, want string }{
		{"$ ", "$ "},
		{"é", "é"},
		{"x\xe2\x9c", "x"},
		{"\xb3", "✳"},
		{"y\x1b", "y"},
		{"[3", ""},
		{"1m", "\x1b[31m"},
		{"\x1b]0;ti", ""},
		{"tle\x1b", ""},
		{"\\z", "\x1b]0;title\x1b\\z"},
	} {
		buf.Reset()
		f.Write([]byte(step.write))
		if buf.String() != step.want {
			t.Errorf("%q: %q, want %q", step.write, buf.String(), step.want)
		}
	}
}

// TestBounds: what is too long is left out to its end and counted; what just fits
// passes.
func TestBounds(t *testing.T) {
	x := func(n int) string { return strings.Repeat("A", n) }
	for _, c := range []struct{ name, in, out, counts string }{
		{"clipboard", "\x1b]52;c;" + x(maxClip) + "\a", "\x1b]52;c;" + x(maxClip) + "\a", ""},
		{"clipboard, too long", "\x1b]52;c;" + x(maxClip+4) + "\ab", "b", "1 clipboard write"},
		{"clipboard, much too long", "\x1b]52;c;" + x(1<<20) + "\ab", "b", "1 clipboard write"},
		{"OSC without an end", "\x1b]0;" + x(1<<20), "", "1 sequence without an end"},
		{"DCS without an end", "\x1bP" + x(1<<20), "", "1 sequence without an end"},
		{"CSI", "\x1b[" + strings.Repeat("1;", 200) + "m", "\x1b[" + strings.Repeat("1;", 200) + "m", ""},
		{"CSI, too long", "\x1b[" + strings.Repeat("1;", 1000) + "mb", "b", "1 sequence without an end"},
		{"title", "\x1b]0;" + x(maxTitle) + "\a", "\x1b]0;" + x(maxTitle) + "\a", ""},
		{"title, too long", "\x1b]0;" + x(maxTitle+1) + "\a", "\x1b]0;" + x(maxTitle) + "\a", "1 end of a long title or notification"},
		{"notification", "\x1b]9;" + x(maxNote-2) + "éé\a", "\x1b]9;" + x(maxNote-2) + "é\a", "1 end of a long title or notification"},
		{"keyboard flags", strings.Repeat("\x1b[>1u", maxPushes+1), strings.Repeat("\x1b[>1u", maxPushes), "1 other sequence"},
		{"titles kept", strings.Repeat("\x1b[22t", maxPushes+1), strings.Repeat("\x1b[22t", maxPushes), "1 other sequence"},
	} {
		for _, size := range []int{1 << 21, 4099, 1} {
			if out, _, counts := written(t, c.in, size); out != c.out || counts.String() != c.counts {
				t.Errorf("%s: in pieces of %d: %d bytes, %s; want %d, %s", c.name, size, len(out), counts, len(c.out), c.counts)
			}
		}
	}
	var many strings.Builder
	for i := range 2 * maxModes {
		many.WriteString("\x1b[?" + strconv.Itoa(3000+i) + "h")
	}
	if _, reset, c := written(t, many.String(), 1<<20); c[other] != maxModes || strings.Count(reset, "l") != maxModes {
		t.Errorf("of many modes %d were left out, %d reset", c[other], strings.Count(reset, "l"))
	}
}

// TestRates: what came too soon passes later.
func TestRates(t *testing.T) {
	var buf bytes.Buffer
	now := at()
	f := New(&buf, func() time.Time { return now })
	for _, step := range []struct {
		after time.Duration
		write string
		pass  bool
	}{
		{0, "\x1b]52;c;YQ==\a", true},
		{999 * time.Millisecond, "\x1b]52;c;YQ==\a", false},
		{time.Millisecond, "\x1b]52;c;YQ==\a", true},
		{0, "\x1b]9;x\a", true},
		{4999 * time.Millisecond, "\x1b]9;x\a", false},
		{time.Millisecond, "\x1b]777;notify;x;y\a", true},
		{0, strings.Repeat("\a", bellsPerSecond), true},
		{0, "\a", false},
		{time.Second, "\a", true},
	} {
		now = now.Add(step.after)
		buf.Reset()
		f.Write([]byte(step.write))
		if got := buf.String(); got != step.write && step.pass || got != "" && !step.pass {
			t.Errorf("%v later, %q: %q", step.after, step.write, got)
		}
	}
}

// TestClosed: after its end a filter passes nothing, and resets once.
func TestClosed(t *testing.T) {
	var buf bytes.Buffer
	f := New(&buf, at)
	f.Write([]byte("\x1b[?1000hx\x1b[21t"))
	f.Close()
	want := "\x1b[?1000hx\x1b[?1000l"
	n, err := f.Write([]byte("late"))
	c, _ := f.Close()
	if buf.String() != want || n != 4 || err != nil || c.String() != "1 title report" {
		t.Errorf("%q, %d, %v, %s", buf.String(), n, err, c)
	}
}
