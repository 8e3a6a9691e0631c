package netns

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/audit"
	"sb/lib/reason"
)

// broken are tools that do not refuse what they must: a place of the source and
// what takes it.
var broken = []struct{ name, tool, file, text, instead, says string }{
	{"an address that no rule names is allowed", "sb-gate", "lib/rule/decide.go", "\treturn refuse(reason.UnresolvedAddress, nil)\n", "\treturn Verdict{Allow: true, Reason: reason.AllowRule}\n", "the gate said"},
	{"a refusal is not listed", "sb-gate", "sb-gate/flow.go", "\tg.refuse(audit.TCP, to, addr.String(), v)\n\treturn slot{}, false", "\treturn slot{}, false", "the gate did not say"},
	{"a refusal is not answered", "sb-gate", "sb-gate/syn.go", "\t\tif !ok {\n\t\t\treturn false\n", "\t\tif !ok {\n\t\t\treturn true\n", "wait for 4 refusals"},
	{"every name is allowed", "sb-dns", "lib/rule/decide.go", "\t\t\treturn Verdict{Allow: true, Reason: reason.AllowRule, Rule: sc.first.text}\n\t\t}\n\t}\n\treturn refuse(reason.NoAllowRule, nil)",
		"\t\t}\n\t}\n\treturn Verdict{Allow: true, Reason: reason.AllowRule}", "sb-dns allowed sb-"},
}

// TestProofOfBroken: a boundary that is broken is not ready, whichever part of it
// is, and lets nothing in. The control is the same one whole.
func TestProofOfBroken(t *testing.T) {
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			l := wired(t, manifest{allow: []string{"allowed.example.org"}})
			tools := map[string]string{"sb-gate": l.tool("sb-gate"), "sb-dns": l.tool("sb-dns")}
			tools[b.tool] = buildBroken(t, b.tool, b.file, b.text, b.instead)
			l.startDNSFrom(tools["sb-dns"])
			gate, log := l.gateCommand(tools["sb-gate"])
			out, err := gate.CombinedOutput()
			log.Close()
			if err == nil || !strings.Contains(string(out), "sb-gate: error: prove that the rules hold: "+b.says) || strings.Contains(string(out), "ready ") {
				t.Errorf("it ended: %v\n%s", err, out)
			}
			for _, line := range l.log() {
				if line.Verdict != audit.Note || line.Reason == reason.GateProved {
					t.Errorf("the log has %s", line)
				}
			}
			whole := newLab(t, manifest{allow: []string{"allowed.example.org"}})
			if all := whole.log(); len(all) < 2 || all[1].Reason != reason.GateProved {
				t.Errorf("control: the log of the whole one: %v", all)
			}
		})
	}
}

// buildBroken builds a tool with one place of the source replaced.
func buildBroken(t *testing.T, tool, file, text, instead string) string {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), text) != 1 {
		t.Fatalf("%s does not have %q once: this test must follow it", path, text)
	}
	changed, overlay, out := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, tool)
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{changed: []byte(strings.Replace(string(source), text, instead, 1)), overlay: list} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-ldflags", "-s -w", "-o", out, ".")
	cmd.Dir = filepath.Join("../..", tool)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", tool, err, b)
	}
	return out
}
