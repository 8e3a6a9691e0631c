package live

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// savedOnes are the templates in a directory.
func savedOnes(templates string) []string {
	all, _ := filepath.Glob(filepath.Join(templates, "[0-9a-f]*"))
	return all
}

// theOne is the only template.
func theOne(t *testing.T, templates string) string {
	t.Helper()
	all := savedOnes(templates)
	if len(all) != 1 {
		t.Fatalf("saved: %v, want one", all)
	}
	return all[0]
}

// TestTemplateRefused: a template that does not fit, is damaged or cannot be
// restored is not used: the machine boots, one line says why, and the next start
// is from memory again.
func TestTemplateRefused(t *testing.T) {
	t.Parallel()
	env, _, templates := ownTemplates(t)
	data := filepath.Dir(templates)
	own := filepath.Join(data, "kernel")
	os.Remove(own) // the link
	if out, err := exec.Command("cp", "-a", filepath.Join(os.Getenv(dataVar), "sb", "kernel"), own).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	once(t, env, "--", "true")
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"a flipped bit", func() error { return flipBit(filepath.Join(theOne(t, templates), "memory"), 1<<20) },
			"the saved machine is not used, it is saved anew: its memory is not what was saved"},
		{"cut short", func() error { return os.Truncate(filepath.Join(theOne(t, templates), "state"), 100<<10) },
			"the saved machine is not used, it is saved anew: its state is not what was saved"},
		{"let others in", func() error { return os.Chmod(theOne(t, templates), 0o777) }, "lets others in"},
		{"cannot be restored", func() error { return forgeState(theOne(t, templates)) },
			"the saved machine cannot be restored, this one boots: "},
		{"the kernel is another", func() error {
			all, _ := filepath.Glob(filepath.Join(own, "*", "vmlinux"))
			return os.Chtimes(all[0], time.Now(), time.Now())
		}, "the machine boots and is saved anew: the saved one has another kernel"},
		{"QEMU is another", func() error {
			for _, dir := range savedOnes(templates) { // the old kernel's too
				os.RemoveAll(dir)
			}
			once(t, env, "--", "true")
			return olderQEMU(theOne(t, templates))
		},
			"the machine boots and is saved anew: the saved one has another QEMU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim(t, "template", "bad-input")
			if _, said := once(t, env, "--", "true"); strings.Contains(said, "boots") || strings.Contains(said, "saved") {
				once(t, env, "--", "true") // the case before has only dropped it
			}
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			out, said := once(t, env, "--", "echo", "it runs")
			if out != "it runs\n" || strings.Count(said, c.want) != 1 || strings.Count(said, "sb-vm:") != 1 {
				t.Errorf("it says %q and %q, want once %q", out, said, c.want)
			}
			if c.name == "cannot be restored" {
				if left := savedOnes(templates); len(left) != 0 {
					t.Errorf("it was not dropped: %v", left)
				}
				once(t, env, "--", "true")
			}
			if _, said := once(t, env, "--", "true"); strings.Contains(said, "sb-vm:") {
				t.Errorf("control: the next start says %q", said)
			}
		})
	}
}

func flipBit(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], at)
	return err
}

// olderQEMU makes a template one that another QEMU saved.
func olderQEMU(dir string) error {
	file := filepath.Join(dir, "made")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	older := strings.Replace(string(text), "/usr/bin/qemu-system-x86_64 (", "/usr/bin/qemu-system-x86_64 (1", 1)
	if older == string(text) {
		return errors.New("its record names no QEMU")
	}
	if err := os.WriteFile(file, []byte(older), 0o600); err != nil {
		return err
	}
	return os.Rename(dir, filepath.Join(filepath.Dir(dir), strings.Repeat("0", 32)))
}

// forgeState makes the state of a template another than QEMU wrote, and its record
// agree with it.
func forgeState(dir string) error {
	state := []byte("QEVM and nothing that QEMU could read")
	if err := os.WriteFile(filepath.Join(dir, "state"), state, 0o600); err != nil {
		return err
	}
	file := filepath.Join(dir, "made")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var record struct {
		Inputs json.RawMessage           `json:"inputs"`
		Parts  map[string]map[string]any `json:"parts"`
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return err
	}
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, 0), state...))
	record.Parts["state"] = map[string]any{"size": len(state), "sha256": hex.EncodeToString(sum[:])}
	if text, err = json.Marshal(record); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// TestTemplateNoMemory: a host that refuses a machine its memory is not the
// template's fault.
func TestTemplateNoMemory(t *testing.T) {
	t.Parallel()
	claim(t, "template", "bad-input")
	env, _, templates := ownTemplates(t)
	const more = "--memory=1g" // more than what is allowed below
	once(t, env, more, "--", "true")
	was := theOne(t, templates)
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -v 1800000; exec "$0" "$@"`, sbRun()}, append(smallBox[:len(smallBox):len(smallBox)], more, "--", "true")...)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the saved machine cannot be restored, this one boots") || cmd.ProcessState.ExitCode() != 125 {
		t.Errorf("with little memory: %v, it says %s", err, out)
	}
	if left := savedOnes(templates); len(left) != 1 || left[0] != was {
		t.Errorf("saved: %v, want %s", left, was)
	}
	if _, said := once(t, env, more, "--", "true"); strings.Contains(said, "sb-vm:") {
		t.Errorf("control: with enough it says %q", said)
	}
}

// TestTemplateDirectory: where templates cannot be kept the machine boots, and one
// line says why.
func TestTemplateDirectory(t *testing.T) {
	t.Parallel()
	env, _, templates := ownTemplates(t)
	for _, c := range []struct {
		name     string
		do, undo []string
		want     string
	}{
		{"open to others", []string{"mkdir", "-m", "755", templates}, []string{"rmdir", templates}, bootsNow + ": use " + templates + ": mode 0755 lets others in"},
		{"another user's", []string{"install", "-d", "-m", "700", "-o", "1234", templates}, []string{"rmdir", templates}, "owned by user 1234"},
		{"a full disk", []string{"sh", "-c", "mkdir -m 700 " + templates + " && mount -t tmpfs -o size=40m,mode=0700 tmpfs " + templates}, []string{"umount", templates}, bootsNow + ": save it: the machine ended: " + templates + ": no space left on device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim(t, "template", "bad-input")
			if out, err := exec.Command(c.do[0], c.do[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v %s", c.do, err, out)
			}
			defer exec.Command(c.undo[0], c.undo[1:]...).Run()
			for n := range 2 {
				out, said := once(t, env, "--", "echo", "it runs")
				if out != "it runs\n" || strings.Count(said, c.want) != 1 {
					t.Errorf("it says %q and %q, want once %q", out, said, c.want)
				}
				if n == 1 && strings.Contains(said, firstOne) {
					t.Errorf("what failed is tried again at once: %q", said)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(templates, ".new*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	claim(t, "template")
	once(t, env, "--", "true")
	if _, said := once(t, env, "--", "true"); strings.Contains(said, "sb-vm:") {
		t.Errorf("control: in a good directory it says %q", said)
	}
}

// TestTemplateTwoAtOnce: of two first starts one saves, and both run.
func TestTemplateTwoAtOnce(t *testing.T) {
	t.Parallel()
	claim(t, "template")
	env, _, templates := ownTemplates(t)
	var said [2]string
	var wait sync.WaitGroup
	for i := range said {
		wait.Go(func() { _, said[i] = once(t, env, "--", "true") })
	}
	wait.Wait()
	theOne(t, templates)
	if all := said[0] + said[1]; strings.Count(all, firstOne) != 1 || strings.Count(all, "waiting for another start") > 1 {
		t.Errorf("they say %q and %q", said[0], said[1])
	}
}

// TestTemplateMakerKilled: a start that is killed while it saves leaves nothing
// that the next one takes for a template, nor that stays.
func TestTemplateMakerKilled(t *testing.T) {
	t.Parallel()
	claim(t, "template", "killed")
	env, _, templates := ownTemplates(t)
	cmd := exec.Command(sbRun(), append(smallBox[:len(smallBox):len(smallBox)], "--", "true")...)
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	half := func() []string {
		all, _ := filepath.Glob(filepath.Join(templates, ".new*", "memory"))
		return all
	}
	for end := time.Now().Add(runTime); len(half()) == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if len(half()) != 1 || len(savedOnes(templates)) != 0 {
		t.Fatalf("control: it was not killed while it saved: %v, %v", half(), savedOnes(templates))
	}
	out, said := once(t, env, "--", "echo", "it runs")
	if out != "it runs\n" || !strings.Contains(said, firstOne) {
		t.Errorf("the next start says %q and %q", out, said)
	}
	theOne(t, templates)
	if len(half()) != 0 {
		t.Errorf("left: %v", half())
	}
	if _, said := once(t, env, "--", "true"); strings.Contains(said, "sb-vm:") {
		t.Errorf("control: then it says %q", said)
	}
}

// TestWarmInterrupted: an interrupted sb-image warm says that it was, and leaves
// nothing half made.
func TestWarmInterrupted(t *testing.T) {
	t.Parallel()
	claim(t, "template", "killed")
	env, _, templates := ownTemplates(t)
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "sb-image"), "warm", "--cpus=1", "--memory=256m", "--accel=tcg", imageRef)
	var said strings.Builder
	cmd.Env, cmd.Stderr = env, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	half := func() []string {
		all, _ := filepath.Glob(filepath.Join(templates, ".new*", "memory"))
		return all
	}
	for end := time.Now().Add(runTime); len(half()) == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	cmd.Process.Signal(os.Interrupt)
	err := cmd.Wait()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "save the machine: it was told to end\n") || strings.Contains(said.String(), "the machine ended") {
		t.Errorf("%v: it says %q", err, said.String())
	}
	if left := append(half(), savedOnes(templates)...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
