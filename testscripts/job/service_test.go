package job

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// serviceVar has agents do the job against their vendors' services, with the key that
// the user of this machine keeps (sb-run secret set NAME): 1 is claude, or it names
// them.
const serviceVar = "SB_AGENT_E2E"

// TestService: the real agent and the real model mend the bug, by what a user types.
func TestService(t *testing.T) {
	names := strings.FieldsFunc(os.Getenv(serviceVar), func(r rune) bool { return r == ',' || r == ' ' })
	if len(names) == 0 {
		t.Skipf("%s=1, or =NAME,…, has agents do a job with your own account, which costs a little", serviceVar)
	}
	program := "sb-run"
	if bin := os.Getenv("SB_BIN"); bin != "" {
		program = filepath.Join(bin, program)
	}
	for _, name := range names {
		if name == "1" {
			name = "claude"
		}
		t.Run(name, func(t *testing.T) {
			call, ok := Calls[name]
			if !ok {
				t.Fatalf("%s: it is not known how %s is given an order", serviceVar, name)
			}
			dir := t.TempDir()
			for file, text := range Bug {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			git := exec.Command("sh", "-euc", "git init -q -b main; git add .; git -c user.name=me -c user.email=me@example.org commit -q -m first")
			git.Dir = dir
			if out, err := git.CombinedOutput(); err != nil {
				t.Fatalf("make a repository: %v\n%s", err, out)
			}
			cmd := exec.Command(program, slices.Concat([]string{name, "--no-input", "--no-state"}, call.Flags, []string{"--"}, call.Words)...)
			var said bytes.Buffer
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
			began := time.Now()
			err := cmd.Run()
			t.Logf("it took %v\n%s", time.Since(began).Round(time.Second), said.String())
			if strings.Contains(said.String(), "no secret is kept for it") {
				t.Skipf("no secret is kept for %s: sb-run secret set keeps one", name)
			}
			if err != nil {
				t.Fatal(err)
			}
			test := exec.Command("sh", "test.sh")
			test.Dir = dir
			if out, err := test.CombinedOutput(); err != nil || string(out) != "the test passes\n" {
				t.Errorf("on this host: %v, %s", err, out)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "test.sh")); string(text) != Bug["test.sh"] {
				t.Errorf("test.sh was changed (%v): %s", err, text)
			}
		})
	}
}
