package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/session"
)

// nasty are words that a shell or TOML could take for something else.
var nasty = []string{
	`$HOME ${HOME} $(echo x) $((1+1))`, "`echo x`", `back\slash \\ \n \`, `'single' "double"`, "new\nline\nEND\nand on", "tab\tand  blanks ",
	`!history`, `$dir/disk`, diskHere, `'''`, `"""`, "é 日本 \u202e", "#comment", "", "-", "--", `\$`, `$1 $@ $$`, "\r\n", "\x1b[31m\x7f",
}

// TestPrintTOML: what is printed is the sandbox; running it is the same.
func TestPrintTOML(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	args := []string{"img", "--allow", "a.example", "--deny", "b.example:443", "--cpus=3", "--memory=300m", "--disk=5g", "--user=1000:7", "--workdir=/x", "--accel=tcg", "-v", s.work + ":/x:ro"}
	for i, w := range nasty {
		args = append(args, "-e", "V"+string(rune('A'+i))+"="+w)
	}
	args = append(append(args, "--", "printf", "[%s]"), nasty...)
	direct := s.run(args...)
	direct.want(t, 0, "!error")
	printed := s.run(append([]string{"--print=toml"}, args...)...)
	printed.want(t, 0, "!error")
	file := filepath.Join(s.work, "my.toml")
	if err := os.WriteFile(file, []byte(printed.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	again := s.run("my.toml")
	again.want(t, 0, "!error")
	if again.stdout != direct.stdout || !strings.Contains(direct.stdout, "["+nasty[0]+"]") {
		t.Errorf("stdout %q, want %q", again.stdout, direct.stdout)
	}
	commands := noted[session.Command](s, "commands")
	if len(commands) != 2 || !reflect.DeepEqual(commands[0], commands[1]) {
		t.Errorf("commands %+v", commands)
	}
	if printed := s.run("--print", "my.toml").stdout; s.parse(printed).Machine.DiskSize != 5<<30 {
		t.Errorf("printed once more: %s", printed)
	}
	disks := 0
	for _, st := range s.starts("sb-image") {
		if st.Args[0] == "disk" {
			disks++
			if st.Args[3] != "5g" {
				t.Errorf("a disk of %s", st.Args[3])
			}
		}
	}
	if disks != 2 {
		t.Errorf("%d disks were made", disks)
	}
}

func (s *stage) parse(text string) *manifest.Manifest {
	s.t.Helper()
	m, err := manifest.Parse("printed", []byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	m.Digest = ""
	return m
}

// TestPrintSh: the script makes the same manifest and runs the same command,
// whatever characters they hold.
func TestPrintSh(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	args := []string{"img", "--allow", "a.example", "--disk=5g"}
	for i, w := range nasty {
		args = append(args, "-e", "V"+string(rune('A'+i))+"="+w)
	}
	args = append(append(args, "--", "sh", "-c", `printf '[%s]' "$@"; cat; exit 7`, "sh"), nasty...)
	s.put("in", "from stdin")
	in := func(args ...string) result {
		f, err := os.Open(filepath.Join(s.dir, "in"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := s.cmd(args...)
		if args[0] == "run.sh" {
			cmd = s.shell(". ./run.sh")
			cmd.Env = append(cmd.Env, "PATH="+s.dir+":"+os.Getenv("PATH"), "dir="+s.work+"/by hand")
		}
		cmd.Stdin = f
		return s.start(cmd).wait()
	}
	direct := in(args...)
	direct.want(t, 7, "!error")
	script := s.run(append([]string{"--print=sh"}, args...)...)
	if err := os.WriteFile(filepath.Join(s.work, "run.sh"), []byte(script.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.work, "by hand"), 0o700); err != nil {
		t.Fatal(err)
	}
	byHand := in("run.sh")
	byHand.want(t, 7, "!error")
	if byHand.stdout != direct.stdout {
		t.Errorf("by hand %q, by sb-run %q", byHand.stdout, direct.stdout)
	}
	commands := noted[session.Command](s, "commands")
	if len(commands) != 2 || !reflect.DeepEqual(commands[0], commands[1]) {
		t.Errorf("commands %+v", commands)
	}
	text, err := os.ReadFile(filepath.Join(s.work, "by hand", "sandbox.toml"))
	if err != nil {
		t.Fatal(err)
	}
	made := s.parse(string(text))
	want := s.parse(s.run(append([]string{"--print"}, args...)...).stdout)
	want.Machine.Disk = filepath.Join(s.work, "by hand", "disk")
	if !reflect.DeepEqual(made, want) {
		t.Errorf("the script's manifest\n%+v\nwant\n%+v", made, want)
	}
	if _, err := os.Stat(want.Machine.Disk); err == nil {
		t.Error("the disk was left")
	}
	if log, err := os.ReadFile(filepath.Join(s.work, "by hand", "audit.log")); err != nil || !strings.Contains(string(log), "gate-start") {
		t.Errorf("audit log %q, %v", log, err)
	}
}

// TestPrintTerminal: the script decides about the terminal as the call did.
func TestPrintTerminal(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for flag, want := range map[string]string{"-i": "--guest=$guest_b\n", "-t": "--guest=$guest_b --tty\n", "--no-tty": "--guest=$guest_b --no-tty\n", "--terminal=raw": "--guest=$guest_b --terminal=raw\n"} {
		if got := s.run("img", "--print=sh", flag); got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: exit code %d, no %q in\n%s", flag, got.code, want, got.stdout)
		}
	}
}
