package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBadInput: what a user can get wrong is told in one line that says what to
// do, before anything boots, and leaves nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		os.WriteFile(path, []byte(text), 0o600)
		return path
	}
	good := []string{"machine.kernel = \"" + kernelDir(t) + "\"", "machine.base = \"" + basePath(t) + "\""}
	for _, c := range []struct {
		name string
		ids  []string
		args []string
		want string // of stderr
	}{
		{"unknown target", []string{"128", "129"}, []string{"nosuch"}, `nosuch is no profile \(there is: claude, codex, copilot, gemini, opencode, pi, shell\); tried as an image: .*\n.*hint:`},
		{"a bare name is Docker Hub's", []string{"124", "125", "127"}, []string{"debian"}, `docker\.io.*library/debian.*latest|index\.docker\.io`},
		{"a qualified name is taken as it is", []string{"126"}, []string{"registry.example.test:5000/a/b:c"}, `registry\.example\.test:5000`},
		{"bad rule", []string{"A19"}, []string{imageRef, "--allow", "example.com, github.com"}, `--allow: .*','.*\n.*hint:`},
		{"bad deny", []string{"A19"}, []string{imageRef, "--deny", "https://x/"}, `--deny: .*`},
		{"unknown key", nil, []string{write("key.toml", "[rules]\nalow = []\n")}, `key\.toml:2: unknown key rules\.alow`},
		{"bad rule in a manifest", nil, []string{write("rule.toml", "[rules]\nallow = [\"a b\"]\n")}, `rule\.toml.*a b`},
		{"missing kernel", nil, []string{write("kernel.toml", "machine.kernel = \"/nowhere\"\n"+good[1])}, `kernel.*\n.*hint: sb-image kernel install`},
		{"missing image", nil, []string{write("base.toml", "machine.base = \"/nowhere\"\n"+good[0])}, `base image.*\n.*hint: sb-image pull`},
		{"not that much memory", nil, []string{imageRef, "--memory", "64m"}, `--memory: 64m is less than the 192m`},
		{"no size", nil, []string{imageRef, "--memory", "lots"}, `--memory: "lots" is no size`},
		{"workspace not there", nil, []string{"shell", "-w", filepath.Join(dir, "nowhere")}, `--workspace: .*no such file`},
		{"workspace is a file", nil, []string{"shell", "-w", file}, `--workspace: .*not a directory`},
		{"the whole host as workspace", nil, []string{"shell", "-w", "/"}, `--workspace: .*whole host`},
		{"mount option", nil, []string{imageRef, "-v", dir + ":/x:RO"}, `--mount: .*"RO" is no mount option`},
		{"mount without a target", nil, []string{imageRef, "-v", dir}, `--mount: .*HOST:GUEST`},
		{"mount over the root", nil, []string{imageRef, "-v", dir + ":/"}, `--mount: .*root`},
		{"unknown flag", nil, []string{imageRef, "--alow", "x"}, `unknown flag: --alow`},
		{"command without --", nil, []string{imageRef, "ls", "-l"}, `one word too many|unknown shorthand`},
		{"no target", nil, nil, `needs a target`},
		{"kvm that does not work", nil, []string{imageRef, "--accel", "kvm", "--", "true"}, `use KVM: .*\n.*hint: --accel tcg`},
		{"unknown accelerator", nil, []string{imageRef, "--accel", "hvf"}, `--accel: "hvf" is none`},
		{"tty without a terminal", nil, []string{imageRef, "-t"}, `--tty: stdin is no terminal`},
		{"env without a name", nil, []string{imageRef, "-e", "=x"}, `--env: "=x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim(t, append(c.ids, "bad-input")...)
			env, state := homes(t)
			cmd := exec.Command(sbRun(), c.args...)
			cmd.Env, cmd.Dir = env, dir
			out, err := cmd.Output()
			exit, ok := err.(*exec.ExitError)
			if !ok || exit.ExitCode() != 125 {
				t.Fatalf("%v, want exit code 125; stdout %q", err, out)
			}
			stderr := string(exit.Stderr)
			if !regexp.MustCompile(c.want).MatchString(stderr) || len(out) != 0 {
				t.Errorf("stderr %q, want %q; stdout %q", stderr, c.want, out)
			}
			if strings.Count(stderr, "error:") > 2 {
				t.Errorf("too many errors: %q", stderr)
			}
			leftNothing(t, state)
		})
	}
}

// ask asks sb-image.
func ask(t *testing.T, args ...string) string {
	t.Helper()
	env, _ := homes(t)
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "sb-image"), args...)
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sb-image %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func kernelDir(t *testing.T) string { return ask(t, "kernel", "show") }
func basePath(t *testing.T) string  { return ask(t, "path", imageRef) }

// TestNoQEMU: a host without QEMU is told what to install.
func TestNoQEMU(t *testing.T) {
	t.Parallel()
	claim(t, "bad-input")
	env, state := homes(t)
	path := t.TempDir()
	for _, tool := range []string{"sh", "ip"} {
		if p, err := exec.LookPath(tool); err == nil {
			os.Symlink(p, filepath.Join(path, tool))
		}
	}
	cmd := exec.Command(sbRun(), imageRef, "--", "true")
	cmd.Env = append(env, "PATH="+path)
	out, err := cmd.CombinedOutput()
	if err == nil || !regexp.MustCompile(`(?s)find QEMU: .*hint: install the package qemu-system-`).Match(out) {
		t.Errorf("%v: %s", err, out)
	}
	leftNothing(t, state)
}

// TestFullDisk: where there is no room for a run directory, or for the log, the
// run says so; nothing is let through unlogged.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	claim(t, "bad-input", "G27")
	env, _ := homes(t)
	small := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", small).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", small).Run() })
	cmd := exec.Command(sbRun(), imageRef, "--", "true")
	cmd.Env = append(env, "XDG_STATE_HOME="+small)
	out, err := cmd.CombinedOutput()
	if err == nil || !regexp.MustCompile(`no space left`).Match(out) {
		t.Errorf("%v: %s", err, out)
	}
	leftNothing(t, filepath.Join(small, "sb"))
	// One that fills up later is told of as well.
	for _, c := range []struct {
		size string
		full bool
	}{{"4m", true}, {"200m", false}} {
		if out, err := exec.Command("mount", "-o", "remount,size="+c.size, small).CombinedOutput(); err != nil {
			t.Fatalf("mount: %v %s", err, out)
		}
		cmd := exec.Command(sbRun(), imageRef, "--", "sh", "-c", "head -c 20000000 /dev/urandom >/root/x; sync")
		cmd.Env = append(env, "XDG_STATE_HOME="+small)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "this host has no room left for "+small) != c.full {
			t.Errorf("with %s: %v: %s", c.size, err, out)
		}
		leftNothing(t, filepath.Join(small, "sb"))
	}
}
