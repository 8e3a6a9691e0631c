package testscripts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sb/lib/fd"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// The built sb-dns, held to the vectors that the library is held to.

// resolver is an sb-dns that runs, and the gate's end of its wire.
type resolver struct {
	t    *testing.T
	file *os.File
	conn *wire.Conn
}

// startResolver starts one with a manifest. Its error is how it ended before it
// was ready.
func startResolver(t *testing.T, manifest string) (*resolver, error) {
	t.Helper()
	ours, theirs, err := fd.Pair("dns", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	cmd := exec.Command(filepath.Join(bin, "sb-dns"), "--manifest", manifest, "--dns=3", "--ready=1")
	cmd.ExtraFiles = []*os.File{theirs}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); cmd.Process.Kill(); cmd.Wait() })
	line := make([]byte, 64)
	if n, _ := out.Read(line); !bytes.HasPrefix(line[:n], []byte("ready ")) {
		return nil, fmt.Errorf("%v: %s", cmd.Wait(), &errs)
	}
	r := &resolver{t, ours, wire.NewConn(ours)}
	ours.SetDeadline(time.Now().Add(30 * time.Second))
	if err := r.conn.Greet(func() []wire.Handle { return nil }, func(wire.Handle) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return r, nil
}

// asks puts a question of one type, whose name may be labels that no host has.
func (r *resolver) asks(labels []string, typ dnsmessage.Type) wire.Answer {
	r.t.Helper()
	msg := []byte{0x12, 0xab, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, l := range labels {
		msg = append(append(msg, byte(len(l))), l...)
	}
	msg = append(msg, 0, byte(typ>>8), byte(typ), 0, 1)
	if err := r.conn.Send(wire.Query{ID: 7, Message: msg}); err != nil {
		r.t.Fatal(err)
	}
	rec, err := r.conn.Next()
	if err != nil {
		r.t.Fatal(err)
	}
	a, ok := rec.(wire.Answer)
	if !ok {
		r.t.Fatalf("sb-dns sent a %T", rec)
	}
	return a
}

// withRules writes a manifest with rules as the vectors have them.
func withRules(t *testing.T, rules string) string {
	var allow, deny []string
	for _, w := range strings.Fields(rules) {
		switch w[0] {
		case '+':
			allow = append(allow, strconv.Quote(w[1:]))
		case '-':
			deny = append(deny, strconv.Quote(w[1:]))
		}
	}
	path := filepath.Join(t.TempDir(), "sandbox.toml")
	text := fmt.Sprintf("[rules]\nallow = [%s]\ndeny = [%s]\n", strings.Join(allow, ", "), strings.Join(deny, ", "))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestA32Lookups: the questions of the vectors that sb-policy check has no word
// for, put to sb-dns.
func TestA32Lookups(t *testing.T) {
	counted(t)
	asked := map[string][]vector{}
	n := 0
	for _, v := range vectors(t, "policy.txt") {
		if strings.HasPrefix(v.col[1], "lookup ") || strings.HasPrefix(v.col[1], "dns:") && strings.HasPrefix(v.col[2], "deny ") {
			asked[v.col[0]] = append(asked[v.col[0]], v)
			n++
		}
	}
	for rules, vs := range asked {
		r, err := startResolver(t, withRules(t, rules))
		if err != nil {
			t.Fatalf("%s: %v", rules, err)
		}
		for _, v := range vs {
			name, typ := strings.TrimPrefix(v.col[1], "lookup "), dnsmessage.TypeA
			if rest, ok := strings.CutPrefix(name, "dns:"); ok {
				name, typ = rest, dnsmessage.TypeTXT
			}
			a := r.asks(strings.Split(name, "."), typ)
			got := "deny " + either(a.Rule) + " " + string(a.Reason)
			if a.Allow {
				got = "allow " + a.Rule
			}
			if got != v.col[2] || a.Allow != a.Handle.IsValid() {
				t.Errorf("%s, %s: %s: %s, want %s", v.where, rules, v.col[1], got, v.col[2])
			}
		}
		r.file.Close()
	}
	if n < 20 {
		t.Errorf("%d questions", n)
	}
}

func either(rule string) string {
	if rule == "" {
		return "-"
	}
	return rule
}

// TestA13Labels: what may be no name is none in a question either.
func TestA13Labels(t *testing.T) {
	counted(t)
	r, err := startResolver(t, withRules(t, "+*.com.example +a.example"))
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for _, v := range vectors(t, "names.txt") {
		labels := words(t, v.col[1])
		if v.col[0] != "labels" || len(labels) == 0 || len(labels[0]) > 63 {
			continue // there is no question with such a name
		}
		a := r.asks(labels, dnsmessage.TypeA)
		isBad := a.Reason == "bad-name" || a.Reason == "dns-malformed"
		if want := strings.HasPrefix(v.col[2], "! "); isBad != want || a.Allow {
			t.Errorf("%s: %q: allow %v, %s", v.where, labels, a.Allow, a.Reason)
		}
		if isBad {
			bad++
		}
	}
	if bad < 15 {
		t.Errorf("%d bad names", bad)
	}
	if a := r.asks([]string{"A", "Example"}, dnsmessage.TypeA); !a.Allow || a.Name != "a.example" {
		t.Errorf("the control: %+v", a)
	}
}

// words reads labels as names.txt has them.
func words(t *testing.T, text string) (all []string) {
	for text != "" && text != "-" {
		word, _, _ := strings.Cut(text, " ")
		if text[0] == '"' {
			q, err := strconv.QuotedPrefix(text)
			if err != nil {
				t.Fatal(err)
			}
			word = q
		}
		text = strings.TrimPrefix(text[len(word):], " ")
		if s, err := strconv.Unquote(word); err == nil {
			word = s
		}
		all = append(all, word)
	}
	return all
}

// TestA18Manifests: a manifest that cannot be read in every word starts nothing;
// one without rules denies everything.
func TestA18Manifests(t *testing.T) {
	counted(t)
	path := filepath.Join(t.TempDir(), "sandbox.toml")
	for _, c := range []struct {
		what, text string
		starts     bool
	}{
		{"A18 nothing", "", true},
		{"A18 no list", "[rules]\n", true},
		{"A18 empty lists", "[rules]\nallow = []\ndeny = []\n", true},
		{"A18 denies alone", "[rules]\ndeny = [\"b.example\"]\n", true},
		{"A18 cut off", "[rules]\nallow = [\"a.exam", false},
		{"A18 a text for a list", "[rules]\nallow = \"a.example\"\n", false},
		{"A18 a number in the list", "[rules]\nallow = [1]\n", false},
		{"A18 an unknown word", "[rules]\nallowed = [\"a.example\"]\n", false},
		{"A18 an unknown table", "[rule]\nallow = [\"a.example\"]\n", false},
		{"A18 a list twice", "[rules]\nallow = [\"a.example\"]\nallow = []\n", false},
		{"A18 a bad rule among good ones", "[rules]\nallow = [\"a.example\", \"*\"]\n", false},
		{"A19 two rules in one", "[rules]\nallow = [\"a.example, b.example\"]\n", false},
		{"A19 a URL", "[rules]\nallow = [\"https://a.example/\"]\n", false},
		{"A19 a bad deny", "[rules]\nallow = [\"a.example\"]\ndeny = [\"b example\"]\n", false},
		{"A18 junk", "\x00\xff\x00", false},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := startResolver(t, path)
		if (err == nil) != c.starts {
			t.Errorf("%s: %v", c.what, err)
		}
		if r != nil {
			if a := r.asks([]string{"a", "example"}, dnsmessage.TypeA); a.Allow || a.Reason != "no-allow-rule" {
				t.Errorf("%s: allow %v, %s", c.what, a.Allow, a.Reason)
			}
			r.file.Close()
		}
	}
	if _, err := startResolver(t, filepath.Join(t.TempDir(), "missing.toml")); err == nil {
		t.Error("it starts without a manifest")
	}
	r, err := startResolver(t, withRules(t, "+a.example"))
	if err != nil {
		t.Fatal(err)
	}
	if a := r.asks([]string{"a", "example"}, dnsmessage.TypeA); !a.Allow {
		t.Errorf("the control: %+v", a)
	}
}
