package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/session"
)

// TestRun: a command runs with our input and output, in an order in which
// nothing starts behind a gate that is not ready.
func TestRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cmd := s.cmd("img", "--allow", "a.example", "-e", "A=b c", "--", "sh", "-c", "cat; until test $(wc -l <../bin/wires) = 2; do sleep 0.01; done; echo out; echo err >&2; exit 42")
	cmd.Stdin = strings.NewReader("in\n")
	r := s.start(cmd).wait()
	r.want(t, 42, "err\n", "!sb-run")
	if r.stdout != "in\nout\n" {
		t.Errorf("stdout %q", r.stdout)
	}
	c := noted[session.Command](s, "commands")[0]
	if c.TTY || c.User != "root" || c.Workdir != "/" || !maps.Equal(c.Env, map[string]string{"A": "b c", "PATH": "/bin:/usr/bin", "FROM": "image"}) {
		t.Errorf("command %+v", c)
	}
	if wires := noted[string](s, "wires"); !slices.Contains(wires, "frames: a frame") || !slices.Contains(wires, "dns: a record") {
		t.Errorf("over the wires came %q", wires)
	}
	if !strings.Contains(s.log(), " note run - - gate-start ") {
		t.Errorf("audit log %q", s.log())
	}
}

// TestChildren: each tool has exactly the descriptors that it is told of, the
// variables it needs, and a process group of its own.
func TestChildren(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	leaked, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer leaked.Close()
	cmd := s.cmd("img", "--", "true")
	cmd.ExtraFiles = []*os.File{leaked, leaked} // as from a shell or make
	cmd.Env = append(cmd.Env, "HTTP_PROXY=http://127.0.0.1:1", "LD_PRELOAD=/nowhere.so", "GODEBUG=netdns=2", "RES_OPTIONS=debug", "XDG_DATA_HOME=/x", "SECRET=1")
	s.start(cmd).wait().want(t, 0)
	for tool, want := range map[string]struct {
		flags []string
		env   []string
	}{
		"sb-gate": {[]string{"frames", "dns", "audit", "ctl", "ready", "leash"}, nil},
		"sb-dns":  {[]string{"dns", "ctl", "ready", "leash"}, nil},
		"sb-vm":   {[]string{"frames", "guest", "ready", "leash"}, []string{"HOME", "PATH", "SB_HOME", "XDG_DATA_HOME"}},
	} {
		starts := s.starts(tool)
		if len(starts) != 1 {
			t.Fatalf("%s was started %d times", tool, len(starts))
		}
		st := starts[0]
		var flags []string
		for _, a := range st.Args[2:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
			flags = append(flags, name)
		}
		if !slices.Equal(flags, want.flags) {
			t.Errorf("%s: flags %q, want %q", tool, flags, want.flags)
		}
		open := slices.Sorted(maps.Keys(st.FDs))
		if len(open) != 3+len(want.flags) || open[len(open)-1] != 2+len(want.flags) {
			t.Errorf("%s: inherited %v, want 0 to %d", tool, st.FDs, 2+len(want.flags))
		}
		if st.FDs[0] != os.DevNull || st.FDs[1] != os.DevNull {
			t.Errorf("%s: stdin is %s, stdout %s", tool, st.FDs[0], st.FDs[1])
		}
		var names []string
		for _, kv := range st.Env {
			name, _, _ := strings.Cut(kv, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want.env) {
			t.Errorf("%s: variables %q, want %q", tool, names, want.env)
		}
		if st.Group != st.PID {
			t.Errorf("%s is in process group %d, not in its own, %d", tool, st.Group, st.PID)
		}
	}
	// sb-image is as if the user had called it.
	for _, st := range s.starts("sb-image") {
		if !slices.Contains(st.Env, "HTTP_PROXY=http://127.0.0.1:1") {
			t.Errorf("sb-image %v: no proxy in %q", st.Args, st.Env)
		}
		if len(st.FDs) != 3 {
			t.Errorf("sb-image %v: inherited %v", st.Args, st.FDs)
		}
	}
}

// TestManifestChanged: all tools get one manifest, that of what was asked for; one
// that was changed since starts nothing again.
func TestManifestChanged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.start(s.cmd("img", "--allow", "a.example", "--", "sh", "-c", "echo up; sleep 1000"))
	r.untilUp()
	gate := s.starts("sb-gate")[0]
	m, err := manifest.Load(gate.Args[1])
	if err != nil {
		t.Fatal(err)
	}
	if m.Name == "" || filepath.Base(filepath.Dir(gate.Args[1])) != m.Name || m.Rules.Allow[0] != "a.example" {
		t.Errorf("manifest %+v in %s", m, gate.Args[1])
	}
	for _, tool := range []string{"sb-dns", "sb-vm"} {
		if got := s.starts(tool)[0].Args[1]; got != gate.Args[1] {
			t.Errorf("%s has the manifest %s, the gate %s", tool, got, gate.Args[1])
		}
	}
	// The control: a gate that dies is started again.
	kill(t, gate.PID)
	r.untilStarts("sb-gate", 2)
	f, err := os.OpenFile(gate.Args[1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("\n")
	f.Close()
	kill(t, s.starts("sb-gate")[1].PID)
	r.wait().want(t, 125, "start sb-gate again: read the manifest: "+gate.Args[1]+" was changed while the sandbox runs")
	if n := len(s.starts("sb-gate")); n != 2 {
		t.Errorf("the gate was started %d times", n)
	}
}
