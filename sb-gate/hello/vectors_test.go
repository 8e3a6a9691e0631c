package hello

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"testing"

	"sb/lib/reason"
	"sb/lib/tlstext"
)

// vector is one line of testdata.
type vector struct {
	what, want string
	in         []byte
}

func vectors(t testing.TB, file string) (all []vector) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]bool{}
	for in := bufio.NewScanner(f); in.Scan(); {
		text := in.Text()
		if text == "" || text[0] == '#' {
			continue
		}
		col := strings.SplitN(text, " |", 3)
		if len(col) != 3 || seen[col[0]] {
			t.Fatalf("%s: no vector, or one that is there twice: %s", file, text)
		}
		seen[col[0]] = true
		b, err := tlstext.Bytes(col[1])
		if err != nil {
			t.Fatalf("%s: %s: %v", file, col[0], err)
		}
		all = append(all, vector{col[0], strings.TrimSpace(col[2]), b})
	}
	return all
}

// outcome is what Parse says, as the vectors have it.
func outcome(b []byte) string {
	h, more, why := Parse(b)
	switch {
	case more:
		return "more"
	case why != "":
		return string(why)
	case h.Encrypted:
		return string(reason.SNIEncrypted)
	case h.Name.String() == "":
		return "none"
	}
	return h.Name.String()
}

// accepted says whether an outcome lets bytes out.
func accepted(outcome string) bool {
	return outcome != "more" && (outcome == "none" || strings.Contains(outcome, ".") || outcome == "localhost")
}

// TestHellos: each hello of testdata/hellos.txt is read as it says there; a good
// one is read from exactly its own bytes, and crypto/tls reads no other name.
func TestHellos(t *testing.T) {
	all := vectors(t, "hellos.txt")
	good, both := 0, 0
	for _, v := range all {
		got := outcome(v.in)
		if got != v.want {
			t.Errorf("%s: %s, want %s", v.what, got, v.want)
			continue
		}
		if agreesWithGo(t, v.in) {
			both++
		}
		if !accepted(got) {
			continue
		}
		good++
		h, _, _ := Parse(v.in)
		if h.Size > len(v.in) || outcome(v.in[:h.Size]) != got || outcome(v.in[:h.Size-1]) != "more" {
			t.Errorf("%s: its size is %d of %d bytes", v.what, h.Size, len(v.in))
		}
	}
	if len(all) < 150 || good < 40 || len(all)-good < 100 || both < 30 {
		t.Errorf("%d vectors, of which %d are good, %d to crypto/tls too", len(all), good, both)
	}
}

// TestB6EveryPrefix: what has come of a good hello is waited for, whatever was
// cut off; what has come of a bad one never lets a byte out.
func TestB6EveryPrefix(t *testing.T) {
	for _, v := range vectors(t, "hellos.txt") {
		h, _, _ := Parse(v.in)
		for n := range min(len(v.in), 400) {
			got := outcome(v.in[:n])
			switch {
			case accepted(v.want) && n < h.Size && got != "more", accepted(v.want) && n >= h.Size && got != v.want:
				t.Fatalf("%s: %s of its first %d bytes", v.what, got, n)
			case !accepted(v.want) && accepted(got):
				t.Fatalf("%s: its first %d bytes are read as %s", v.what, n, got)
			}
		}
	}
}

// TestB7EveryCut: the message of each hello, cut into two records anywhere, is
// read as it is in one, or refused.
func TestB7EveryCut(t *testing.T) {
	cuts := 0
	for _, v := range vectors(t, "hellos.txt") {
		if len(v.in) < recordHeader || v.in[0] != recordHandshake || int(v.in[3])<<8|int(v.in[4]) != len(v.in)-recordHeader || len(v.in) > 1000 {
			continue // no hello in one record
		}
		msg := v.in[recordHeader:]
		if len(msg) > 4 && len(msg) > 4+(int(msg[1])<<16|int(msg[2])<<8|int(msg[3])) {
			continue // what is behind the hello may stand in the next record
		}
		for cut := 1; cut < len(msg); cut++ {
			in := append(record(msg[:cut]), record(msg[cut:])...)
			got := outcome(in)
			if plain := outcome(record(msg)); got != plain {
				t.Fatalf("%s: %s when it is cut at %d, %s when not", v.what, got, cut, plain)
			}
			cuts++
		}
	}
	if cuts < 10_000 {
		t.Errorf("%d cuts", cuts)
	}
}

// TestWatches: what follows a hello, at once and in pieces.
func TestWatches(t *testing.T) {
	all := vectors(t, "watches.txt")
	for _, v := range all {
		first := Hello{Name: name(t, "a.example.com"), Early: strings.Contains(v.what, ", early"), Encrypted: strings.Contains(v.what, ", encrypted first")}
		for _, chunk := range []int{max(len(v.in), 1), 1, 7} {
			w := NewWatch(first)
			if !strings.Contains(v.what, ", unanswered") {
				w.Answered(strings.Contains(v.what, ", served"))
			}
			got, passed := watched(w, v.in, chunk)
			if got != v.want {
				t.Errorf("%s, %d bytes at a time: %s, want %s", v.what, chunk, got, v.want)
			}
			if (got == "over" || got == "on") && !bytes.Equal(passed, v.in) || !bytes.HasPrefix(v.in, passed) {
				t.Errorf("%s, %d bytes at a time: % x passed of % x", v.what, chunk, passed, v.in)
			}
			if bytes.Contains(passed, []byte("b.example.com")) {
				t.Errorf("%s, %d bytes at a time: the other name passed", v.what, chunk)
			}
		}
	}
	if len(all) < 50 {
		t.Errorf("%d vectors", len(all))
	}
}

// watched gives a stream to a watch, so many bytes at a time.
func watched(w *Watch, in []byte, chunk int) (outcome string, passed []byte) {
	why := reason.Code("")
	for rest := in; len(rest) > 0; {
		var p []byte
		n := min(chunk, len(rest))
		if p, why = w.Next(rest[:n]); why != "" {
			return string(why), passed
		}
		passed, rest = append(passed, p...), rest[n:]
	}
	switch {
	case w.Over():
		return "over", passed
	case w.Waits():
		return "waits", passed
	case len(passed) < len(in):
		return "held", passed
	}
	return "on", passed
}
