package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sb/lib/audit"
)

// TestByHand is the script of the README: a machine from sb-image, sb-dns,
// sb-gate and sb-vm with no sb-run in charge.
func TestByHand(t *testing.T) {
	t.Parallel()
	claim(t, "by-hand")
	env, _ := homes(t)
	cmd := exec.Command("sh", "by-hand.sh", imageRef, "allowed.example.org", "denied.example.org")
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`(?m)^served GET / host=allowed\.example\.org`,
		`(?m)^\S+ allow tcp allowed\.example\.org 45\.67\.0\.10:80 allow-rule allowed\.example\.org$`,
		`(?m)^\S+ deny dns denied\.example\.org - no-allow-rule -$`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// TestReadme: the README shows the script that is tested.
func TestReadme(t *testing.T) {
	claim(t, "readme")
	script, err := os.ReadFile("by-hand.sh")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := "    " + strings.ReplaceAll(strings.TrimSpace(string(script)), "\n", "\n    ")
	if !strings.Contains(string(readme), shown) {
		t.Error("the README does not have by-hand.sh as it is")
	}
}

// TestPrintedScript: what --print=sh prints is the same sandbox. Its audit log
// has the lines of sb-run's own.
func TestPrintedScript(t *testing.T) {
	t.Parallel()
	claim(t, "print")
	b := box{flags: []string{"--allow", "allowed.example.org", "--allow", "ssh.example.org:22"}, script: `
curl -sS http://allowed.example.org/x; curl -sS http://denied.example.org/; timeout 20 busybox nc ssh.example.org 22 </dev/null; probe tcp 45.67.0.30:80`}
	own := run(t, b)
	own.ok(t)
	env, _ := homes(t)
	dir := t.TempDir()
	script := exec.Command(sbRun(), append([]string{"--print=sh"}, b.args()...)...)
	script.Env = env
	text, err := script.Output()
	if err != nil {
		t.Fatalf("--print=sh: %v", err)
	}
	file := filepath.Join(dir, "run.sh")
	if err := os.WriteFile(file, text, 0o700); err != nil {
		t.Fatal(err)
	}
	byHand := exec.Command(file)
	byHand.Env = append(env, "dir="+dir)
	out, err := byHand.Output()
	if err != nil {
		t.Fatalf("the printed script: %v\n%s\n%s", err, out, text)
	}
	if norm(string(out)) != norm(own.stdout) {
		t.Errorf("the printed script prints\n%s\nsb-run\n%s", out, own.stdout)
	}
	log, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []audit.Line
	for l := range strings.Lines(string(log)) {
		line, err := audit.Parse([]byte(l))
		if err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		lines = append(lines, line)
	}
	got, want := decisions(lines), decisions(own.audit)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("by hand\n  %s\nby sb-run\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// norm takes out what differs from run to run.
func norm(s string) string { return regexp.MustCompile(`ms=\d+`).ReplaceAllString(s, "ms=N") }

// decisions are the lines of a log without its times and measures, each kind
// once: how often a question was repeated is the guest's timing.
func decisions(lines []audit.Line) (out []string) {
	seen := map[string]bool{}
	for _, l := range lines {
		if l.Verdict == audit.Note || l.Gate == audit.Look || l.Gate == audit.Frame {
			continue
		}
		text := fmt.Sprintf("%s %s %s %s %s %s", l.Verdict, l.Gate, l.Name, l.Address, l.Reason, l.Rule)
		for _, w := range l.Words {
			if w.Key == "up" || w.Key == "down" {
				text += " " + w.Key + "=" + w.Value
			}
		}
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	return out
}

// TestPageExamples: what the manual pages show of a sandbox by hand runs.
func TestPageExamples(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]string{
		"sb-gate": `(?m)^\S+ deny dns denied\.example - no-allow-rule -$`,
		"sb-dns":  `(?m)^198\.18\.\S+ +example\.com$`,
		"sb-vm":   `(?m)^Linux `,
	} {
		t.Run(tool, func(t *testing.T) {
			claim(t, "by-hand")
			page, err := os.ReadFile("../../" + tool + "/" + tool + ".1")
			if err != nil {
				t.Fatal(err)
			}
			example := regexp.MustCompile(`(?ms)^(sb-run pair .*?)^\.Ed$`).FindSubmatch(page)
			if example == nil {
				t.Fatal("the page has none")
			}
			text := strings.NewReplacer(`\e`, `\`, `\(aq`, "'", `\-`, "-").Replace(string(example[1]))
			script := exec.Command("sh", "-c", `sb-image disk disk
cat >sandbox.toml <<END
rules.allow = ["example.com"]
machine.kernel = "$(sb-image kernel show)"
machine.base = "$(sb-image path "$1")"
machine.disk = "$PWD/disk"
machine.accel = "tcg"
END
timeout 120 `+text, "sh", imageRef)
			script.Env, _ = homes(t)
			script.Dir = t.TempDir()
			out, _ := script.CombinedOutput()
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("no %s in\n%s", want, out)
			}
		})
	}
}
