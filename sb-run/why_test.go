package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const whyLog = `2026-08-26T06:21:28.110Z deny dns a.example - no-allow-rule -
2026-08-26T06:21:28.120Z allow tcp c.example 192.0.2.1:80 allow-rule c.example
2026-08-26T06:21:28.130Z deny frame - - frame-ethertype - n=9
2026-08-26T06:21:28.140Z deny tls b.example 192.0.2.1:443 sni-denied - n=7
no line of a log
2026-08-26T06:21:28.150Z deny dns a.example - no-allow-rule - n=2
`

// TestWhy: a log's refusals are told as at the end of a run, with what their
// reasons mean; what passed, and what nobody asked for, is not.
func TestWhy(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run("why").want(t, 125, "no sandbox has run yet")
	log := filepath.Join(s.home, "state", "log")
	if err := os.MkdirAll(log, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(log, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("x-1.log", whyLog)
	got := s.run("why")
	got.want(t, 0, "what x-1 was refused, the newest sandbox:")
	want := "b.example 7× sni-denied  (--allow b.example)\na.example 3× no-allow-rule  (--allow a.example)\nsni-denied: "
	if got.code != 0 || !strings.HasPrefix(got.stdout, want) || strings.Contains(got.stdout, "c.example") || strings.Contains(got.stdout, "frame") {
		t.Errorf("%d, %q", got.code, got.stdout)
	}
	got = s.run("why", "x-1", "--json")
	if n := strings.Count(got.stdout, "\n"); got.code != 0 || n != 2 || !strings.Contains(got.stdout, `"count":3,"gate":"dns","name":"a.example"`) || !strings.Contains(got.stdout, `"allow":"a.example"`) {
		t.Errorf("%d, %q", got.code, got.stdout)
	}
	put("quiet-1.log", "2026-08-26T06:21:28.120Z allow tcp c.example 192.0.2.1:80 allow-rule c.example\n")
	got = s.run("why", "quiet-1")
	got.want(t, 1, "quiet-1 was refused nothing")
	if got.stdout != "" {
		t.Errorf("%q", got.stdout)
	}
	// Where no rule is of use, what else can be done is told.
	put("own-1.log", "2026-08-26T06:21:28.110Z deny broker a.example 192.0.2.1:443 upstream-unverified -\n")
	if got := s.run("why", "own-1"); got.code != 0 || !strings.Contains(got.stdout, `roots = ["/path/ca.pem"] under [broker].`) {
		t.Errorf("%d, %q", got.code, got.stdout)
	}
	if got := s.run("why", "own-1", "--json"); got.code != 0 || !strings.Contains(got.stdout, `"fix":"If the server is one of your own`) {
		t.Errorf("%d, %q", got.code, got.stdout)
	}
	if got := s.run("why", "x-1"); strings.Contains(got.stdout, "--allow NAME") {
		t.Errorf("%q", got.stdout)
	}
	s.run("why", "absent-1").want(t, 125, "no such sandbox")
	s.run("why", "../x").want(t, 125, "no name of a sandbox")
	s.run("why", "x-1", "x-2").want(t, 125, "one word too many")
	// A run's own log, while it runs.
	run := filepath.Join(s.home, "state", "run", "live-1")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "audit.log"), []byte(whyLog+"2026-08-26T06:21:28.150Z deny dns half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.run("why", "live-1"); got.code != 0 || !strings.Contains(got.stdout, "a.example 3×") || strings.Contains(got.stdout, "half") {
		t.Errorf("%d, %q", got.code, got.stdout)
	}
	os.RemoveAll(run)
	// What lies there as a link is not read.
	os.Symlink(filepath.Join(log, "x-1.log"), filepath.Join(log, "link-1.log"))
	s.run("why", "link-1").want(t, 125, "no such sandbox")
}

// TestWhyBounds: so many different refusals are told apart, and the rest counted.
func TestWhyBounds(t *testing.T) {
	var text bytes.Buffer
	for i := range maxWhy + 5 {
		fmt.Fprintf(&text, "2026-08-26T06:21:28.110Z deny dns x%d.example - no-allow-rule - n=2\n", i)
	}
	var r refusals
	if err := r.read(&text); err != nil {
		t.Fatal(err)
	}
	if len(r.all) != maxWhy || r.more != 10 {
		t.Errorf("%d refusals and %d more", len(r.all), r.more)
	}
}
