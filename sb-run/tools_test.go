package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
)

// TestToolsInWorkspace: where the tools lie in what is shared, or the manifest
// that is run, the machine is told to protect them, and it is said once.
func TestToolsInWorkspace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	elsewhere, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.home = filepath.Join(elsewhere, "home")
	s.env = append(s.env, "SB_HOME="+s.home, "HOME="+elsewhere)
	top := filepath.Dir(s.dir)
	show := []string{"--", "sh", "-c", "cat " + s.home + "/state/run/*/sandbox.toml"}
	protected := func(args ...string) ([]string, result) {
		t.Helper()
		got := s.run(append(args, show...)...)
		m, err := manifest.Parse("stdout", []byte(got.stdout))
		if err != nil || len(m.Shares) != 1 {
			t.Fatalf("%v: %+v; stderr:\n%s", err, m, got.stderr)
		}
		always := func(p string) bool {
			return slices.ContainsFunc(guardedPaths, func(g guarded) bool { return g.path == p })
		}
		return slices.DeleteFunc(m.Shares[0].Protected, always), got
	}
	for _, c := range []struct{ flag, want string }{
		{"-w=" + top, "/bin"},
		{"-v=" + top + ":/x", "/bin"},
		{"-v=" + top + ":/x:ro", ""},
		{"-w=" + s.work, ""},
	} {
		got, r := protected("img", c.flag)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: protected %q, want %s", c.flag, got, c.want)
		}
		if note := s.dir + " is read-only in the guest"; c.want == "" {
			r.want(t, 0, "!read-only")
		} else {
			r.want(t, 0, note)
		}
	}
	s.run("img", "-w", s.dir).want(t, 125, "share "+s.dir+": what sandboxes are made of is found in it")

	m := s.printed("img", "-w", s.work, "--", "true")
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.work, "my.toml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := protected("my.toml"); strings.Join(got, " ") != "/my.toml" {
		t.Errorf("the manifest: protected %q", got)
	}
}

// TestToolsAreFoundOnce: a part that died is started again from where it was,
// whatever lies where it would be found now.
func TestToolsAreFoundOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	far := filepath.Join(filepath.Dir(s.dir), "far")
	if err := os.Mkdir(far, 0o700); err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(s.dir, "sb-gate")
	if err := os.Rename(gate, filepath.Join(far, "sb-gate")); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "PATH="+far+":"+os.Getenv("PATH"))
	r := s.start(s.cmd("img", "--", "sh", "-c", untilFile))
	r.untilUp()
	starts := func() []started { return noted[started](s, "../far/sb-gate.starts") }
	if err := os.WriteFile(gate, []byte("#!/bin/sh\n: >"+s.dir+"/planted\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	kill(t, starts()[0].PID)
	r.until("the gate again", func() bool { return len(starts()) >= 2 })
	s.goOn()
	r.wait().want(t, 7, "sb-gate died")
	if _, err := os.Stat(filepath.Join(s.dir, "planted")); err == nil {
		t.Error("what was planted was started")
	}
}
