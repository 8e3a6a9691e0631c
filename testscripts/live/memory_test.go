package live

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownTemplates is an environment like that of homes, with templates of its own:
// the images and the kernel are the shared ones.
func ownTemplates(t *testing.T) (env []string, state, templates string) {
	t.Helper()
	env, state = homes(t)
	data := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(data, "sb"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"images", "refs", "kernel"} {
		if err := os.Symlink(filepath.Join(os.Getenv(dataVar), "sb", name), filepath.Join(data, "sb", name)); err != nil {
			t.Fatal(err)
		}
	}
	return append(env, "XDG_DATA_HOME="+data), state, filepath.Join(data, "sb", "templates")
}

// smallBox is the smallest machine, with a script that tells which it is.
var smallBox = []string{imageRef, "--cpus=1", "--memory=256m", "--accel=tcg", "--allow=allowed.example.org"}

// once runs a command in a machine and returns what it and sb-run said.
func once(t *testing.T, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(sbRun(), append(smallBox[:len(smallBox):len(smallBox)], args...)...)
	var out, errs strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	timer := time.AfterFunc(runTime, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		t.Fatalf("sb-run %v: %v\n%s%s", args, err, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

const (
	firstOne = "the first machine of its kind boots, and is saved"
	bootsNow = "the machine boots, it is not restored from memory"
)

// uptime prints since when the guest's kernel runs, in seconds, and whether it is
// the one that was saved: a file of the saved machine's would be there.
const whichBoot = `read up _ </proc/uptime; echo "up $up"; cat /proc/sys/kernel/random/boot_id /etc/machine-id; od -An -tx1 -N32 /dev/urandom; date +%s`

// TestTemplate: the first machine of a kind is saved and goes on as a restore of
// itself, the next ones are restored, --cold boots; what they are restored from
// they cannot write.
func TestTemplate(t *testing.T) {
	t.Parallel()
	claim(t, "template")
	env, state, templates := ownTemplates(t)
	_, said := once(t, env, "--", "true")
	if !strings.Contains(said, firstOne) {
		t.Errorf("the first start says %q", said)
	}
	list := func() []string { all, _ := filepath.Glob(filepath.Join(templates, "[0-9a-f]*")); return all }
	saved := list()
	if len(saved) != 1 {
		t.Fatalf("saved: %v", saved)
	}
	if _, said = once(t, env, "--", "true"); strings.Contains(said, "boots") {
		t.Errorf("the second start says %q", said)
	}
	memory := func(flags ...string) (found bool) {
		b := box{flags: append([]string{"--cpus=1", "--memory=256m", "--accel=tcg"}, flags...), script: waiting}
		s := startIn(t, b, env, state)
		pid := s.pidOf("qemu-system-x86_64")
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			link, _ := os.Readlink(fd)
			if !strings.HasPrefix(link, templates) {
				continue
			}
			if found = true; filepath.Base(link) != "memory" {
				t.Errorf("QEMU has %s open", link)
			}
			info, _ := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
			if m := regexp.MustCompile(`flags:\s+0*(\d+)\n`).FindSubmatch(info); m == nil || m[1][len(m[1])-1] != '0' {
				t.Errorf("QEMU has its memory open for writing: %s", info)
			}
		}
		s.cmd.Process.Signal(syscall.SIGTERM)
		s.wait(15 * time.Second)
		return found
	}
	if !memory() {
		t.Error("QEMU has no saved memory open: it was not restored")
	}
	if memory("--cold") {
		t.Error("control: QEMU has saved memory open with --cold")
	}
	// A guest that cannot do what it is told was restored all the same.
	wrong := exec.Command(sbRun(), append(smallBox[:len(smallBox):len(smallBox)], "-v", t.TempDir()+":/etc/passwd/x", "--", "true")...)
	wrong.Env = env
	if out, err := wrong.CombinedOutput(); err == nil || strings.Count(string(out), "mount the share at /etc/passwd/x") != 1 || strings.Contains(string(out), "boots") {
		t.Errorf("a share that cannot be mounted: %v, %s", err, out)
	}
	if again := list(); len(again) != 1 || again[0] != saved[0] {
		t.Errorf("saved: %v", again)
	}
}

// TestRestoresDiffer: two machines restored from one template have other random
// numbers from the first on, other identities and the right time. The control, with
// an sb-vm that gives them no randomness, has the same.
func TestRestoresDiffer(t *testing.T) {
	t.Parallel()
	claim(t, "template", "reseed")
	env, _, templates := ownTemplates(t)
	const script = whichBoot + `; openssl genpkey -algorithm X25519 | sed -n 2p; read -r name </etc/hostname; echo "$name"
curl -sS --max-time 20 -o /dev/null -w '%{local_port}\n' http://allowed.example.org/`
	once(t, env, "--", "true")
	var got [2][]string
	for i := range got {
		before := time.Now().Unix()
		out, said := once(t, env, "--", "sh", "-c", script)
		if strings.Contains(said, "boots") {
			t.Fatalf("it was not restored: %s", said)
		}
		got[i] = strings.Split(strings.TrimSpace(out), "\n")
		if len(got[i]) != 9 {
			t.Fatalf("it says %q", out)
		}
		var at int64
		if fmt.Sscan(got[i][5], &at); at < before || at > time.Now().Unix() {
			t.Errorf("its clock says %d, it is %d", at, before)
		}
	}
	for n, what := range map[int]string{1: "boot id", 2: "machine id", 3: "/dev/urandom", 4: "/dev/urandom", 6: "TLS key", 7: "hostname", 8: "first port"} {
		if got[0][n] == got[1][n] {
			t.Errorf("both have the %s %s", what, got[0][n])
		}
	}
	bin := unseeded(t)
	// A guest also draws afresh once its last draw is old, which may be just after
	// it was saved: then all that are restored from it differ, and another is saved.
	for tries := 1; !sameDraws(t, bin, env); tries++ {
		if tries == 8 {
			t.Fatal("control: no two machines without new randomness have the same")
		}
		if err := os.RemoveAll(templates); err != nil {
			t.Fatal(err)
		}
		once(t, env, "--", "true")
	}
}

// sameDraws says whether two of a few machines that the tools in bin restore draw
// the same first random number, their machine id.
func sameDraws(t *testing.T, bin string, env []string) bool {
	t.Helper()
	drawn := map[string]bool{}
	for range 4 {
		cmd := exec.Command(filepath.Join(bin, "sb-run"), append(smallBox[:len(smallBox):len(smallBox)], "--", "cat", "/etc/machine-id")...)
		cmd.Env = append(env, "PATH="+bin+":"+os.Getenv("PATH"))
		id, err := cmd.Output()
		if err != nil || len(id) != 33 {
			t.Fatalf("control: %q, %v", id, err)
		}
		if drawn[string(id)] {
			return true
		}
		drawn[string(id)] = true
	}
	t.Logf("control: all differ: %q", slices.Collect(maps.Keys(drawn)))
	return false
}

// unseeded is a directory of the tools with an sb-vm that gives its guests no
// randomness.
func unseeded(t *testing.T) string {
	t.Helper()
	const line, without = "Entropy: entropy(), ", ""
	source, err := filepath.Abs("../../sb-vm/vm.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil || !strings.Contains(string(text), line) {
		t.Fatalf("%s (%v) has no %q: this test must be told how guests get their randomness", source, err, line)
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "vm.go")
	os.WriteFile(other, []byte(strings.Replace(string(text), line, without, 1)), 0o600)
	overlay := filepath.Join(dir, "overlay.json")
	os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, source, other), 0o600)
	version, err := exec.Command(sbRun(), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(version))
	cmd := exec.Command("go", "build", "-overlay", overlay, "-trimpath", "-ldflags", "-X sb/lib/say.Version="+f[len(f)-1], "-o", filepath.Join(dir, "sb-vm"), "../../sb-vm")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build sb-vm without it: %v\n%s", err, out)
	}
	for _, name := range []string{"sb-run", "sb-gate", "sb-dns", "sb-image", "sb-guest", "sb-policy"} {
		b, err := os.ReadFile(filepath.Join(os.Getenv(binVar), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
