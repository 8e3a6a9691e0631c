package testscripts

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sb/lib/audit"
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

// questionWords stand for bytes in the vectors of sb-dns.
var questionWords = map[string]string{
	"Q": "12ab01000001000000000000", "QE": "12ab01000001000000000001",
	"A": "0001", "PTR": "000c", "TXT": "0010", "AAAA": "001c", "SVCB": "0040", "HTTPS": "0041", "IN": "0001", "CH": "0003",
}

// question reads the bytes of a vector of sb-dns.
func question(t *testing.T, text string) (out []byte) {
	for _, w := range strings.Fields(text) {
		if s, ok := questionWords[w]; ok {
			w = s
		}
		if size, ok := strings.CutPrefix(w, "OPT:"); ok {
			n, _ := strconv.Atoi(size)
			w = fmt.Sprintf("000029%04x000000000000", n)
		}
		if name, ok := strings.CutPrefix(w, "@"); ok {
			for l := range strings.SplitSeq(name, ".") {
				if l != "" {
					out = append(append(out, byte(len(l))), l...)
				}
			}
			w = "00"
		}
		b, err := hex.DecodeString(w)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// TestA24Questions: the vectors of sb-dns, put to one that runs. What it answers
// is what the vectors say, but for the address, which depends on what came before.
func TestA24Questions(t *testing.T) {
	counted(t)
	text, err := os.ReadFile("../sb-dns/testdata/queries.txt")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]byte{"noerror": 0, "formerr": 1, "servfail": 2, "nxdomain": 3, "notimp": 4, "refused": 5}
	rules, n := "", 0
	var r *resolver
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		col := strings.SplitN(line, " | ", 3)
		if verb, rule, ok := strings.Cut(line, " "); ok && len(col) == 1 && (verb == "allow" || verb == "deny") {
			rules += map[string]string{"allow": " +", "deny": " -"}[verb] + rule
		}
		if len(col) != 3 || line[0] == '#' {
			continue
		}
		if r == nil {
			if r, err = startResolver(t, withRules(t, rules)); err != nil {
				t.Fatal(err)
			}
		}
		n++
		want := strings.Fields(col[2])
		if err := r.conn.Send(wire.Query{ID: uint32(n), Message: question(t, col[1])}); err != nil {
			t.Fatal(err)
		}
		rec, err := r.conn.Next()
		a, ok := rec.(wire.Answer)
		if err != nil || !ok || a.ID != uint32(n) {
			t.Fatalf("%s: %#v, %v", col[0], rec, err)
		}
		verdict := map[bool]string{true: "allow", false: "deny"}[a.Allow]
		name := strings.Fields(audit.Line{Name: a.Name}.String())[3]
		switch {
		case want[0] == "drop":
			ok = a.Message == nil && !a.Allow && string(a.Reason) == want[1]
		default:
			ok = len(a.Message) >= 12 && a.Message[3]&15 == codes[want[0]] && verdict == want[1] && string(a.Reason) == want[2] && name == want[3] && a.Type == want[4]
		}
		if !ok {
			t.Errorf("%s: %s %s %s %s, % x; want %s", col[0], verdict, a.Reason, name, a.Type, a.Message, want)
		}
	}
	if n < 120 {
		t.Errorf("%d questions", n)
	}
}
