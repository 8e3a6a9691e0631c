package live

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/profile"
	"sb/testscripts/job"
	"sb/testscripts/model"
)

// jobTime bounds an agent's whole job: some are half a gigabyte of JavaScript, which
// an emulated machine is slow to load.
const jobTime = 12 * time.Minute

// given is the secret that an agent does the job with.
type given struct {
	secret        string // what it is kept as
	key           string // what it is
	variable      string // that has the placeholder
	header, value string // with which the vendor's server gets it

	leaves []string // what the agent leaves in a project by itself
}

var jobs = map[string]given{
	"claude":   anthropicKey("claude"),
	"codex":    {secret: "openai", key: "sk-proj-" + hidden + "-for-codex", variable: "CODEX_API_KEY", header: "Authorization", value: "Bearer %s"},
	"copilot":  anthropicKey("copilot"),
	"gemini":   {secret: "gemini", key: "AIza" + hidden + "-for-gemini", variable: "GEMINI_API_KEY", header: "X-Goog-Api-Key", value: "%s"},
	"opencode": anthropicKey("opencode", ".git/opencode"),
	"pi":       anthropicKey("pi"),
}

func anthropicKey(name string, leaves ...string) given {
	return given{"anthropic", "sk-ant-api03-" + hidden + "-for-" + name, "ANTHROPIC_API_KEY", "X-Api-Key", "%s", leaves}
}

// TestAgentJob: each agent, in the environment that its profile builds, does a job as
// a user would have it do one.
func TestAgentJob(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim(t, "job")
			jobs[name].do(t, name)
		})
	}
}

// owned is all that there is of a directory: by path, kind and mode, owners, and what
// it holds.
func owned(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		var holds []byte
		switch {
		case st.Mode().IsRegular():
			holds, err = os.ReadFile(path)
		case st.Mode()&os.ModeSymlink != 0:
			to, lerr := os.Readlink(path)
			holds, err = []byte(to), lerr
		}
		sys := st.Sys().(*syscall.Stat_t)
		name, _ := filepath.Rel(dir, path)
		all[name] = fmt.Sprintf("%v %d:%d %s", st.Mode(), sys.Uid, sys.Gid, holds)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// changed is what differs between two trees.
func changed(before, after map[string]string) (names []string) {
	for name := range after {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			names = append(names, name+" (gone)")
		}
	}
	slices.Sort(names)
	return names
}

// steps are what the model has the agent do: look around, mend the bug, and write a
// file of its own.
func (j given) steps(work string) []model.Action {
	// No substitution, which one of them takes for an attack; and by the environment of
	// the agent, for not every one passes all of it on.
	look := "cd " + work + `; sh test.sh; id -u | sed s/^/uid=/; sudo -n id -u | sed s/^/root=/; readlink /workspace | sed s/^/workspace=/; ` +
		`cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | sed -n 's/^` + j.variable + `=/key=/p' | head -1`
	return []model.Action{
		{Do: "sh", Command: look},
		{Do: "read", Path: work + "/sum.sh"},
		{Do: "edit", Path: work + "/sum.sh", Old: "$1 - $2", New: "$1 + $2"},
		{Do: "write", Path: work + "/docs/notes", New: "it subtracted\n"},
		{Do: "sh", Command: "cd " + work + " && sh test.sh"},
	}
}

// do has the agent do the job and checks what came of it.
func (j given) do(t *testing.T, name string) {
	profile := environmentOf(t, name)
	a, v := newAccount(t), theVendors(t)
	a.take(func(ref string) bool { return ref == baseOf(t, name) || strings.HasPrefix(ref, "env:"+name+"-") })
	if profile != nil {
		a.profile(name, profile)
	}
	a.configure("")
	a.keep(j.secret, j.key)
	value := fmt.Sprintf(j.value, j.key)
	v.Add(model.Task{Header: j.header, Value: value, Steps: j.steps(a.work), End: "It passes now."})
	before := owned(t, a.work)

	began := time.Now()
	r := a.sbRun(jobTime, slices.Concat([]string{name, "--secret", j.secret}, job.Calls[name].Flags, []string{"--"}, job.Calls[name].Words)...)
	t.Logf("the job took %v; the vendors saw%s", time.Since(began).Round(100*time.Millisecond), shown(v.with(j.key)))
	r.ok(t)
	if !strings.Contains(r.stdout+r.stderr, "It passes now.") {
		t.Errorf("it does not say so:\n%s\n%s", r.stdout, r.stderr)
	}
	if strings.Contains(r.stderr, "is built") {
		t.Errorf("the environment was built again:\n%s", r.stderr)
	}
	j.checkTurns(t, a.work, value)
	j.checkTree(t, before, owned(t, a.work))
	if all := r.stdout + r.stderr + r.auditText(); strings.Contains(all, hidden) {
		t.Errorf("the key is in what the run said:\n%s", all)
	}
	a.again(name, j.secret)
}

// checkTurns: the model's server, which lets in the key alone, heard each step and
// what came of it.
func (j given) checkTurns(t *testing.T, work, value string) {
	t.Helper()
	last := map[int]string{}
	for _, q := range theVendors(t).with(value) {
		if q.Step >= 0 && q.Status == 200 && len(q.Tools) > 0 {
			last[q.Step] = q.Last
		}
	}
	look := regexp.MustCompile(`(?s)the test fails.*uid=1000[\n\\]+n?root=0[\n\\]+n?workspace=` + regexp.QuoteMeta(work) + `\b.*key=([\w-]{20,})`).FindStringSubmatch(last[1])
	if look == nil || !strings.Contains(last[5], "the test passes") {
		t.Fatalf("what came of the steps is %v; the servers saw%s", last, shown(theVendors(t).Seen()))
	}
	if placeholder := look[1]; strings.Contains(placeholder, hidden) || len(theVendors(t).with(placeholder)) > 0 {
		t.Errorf("the variable holds %q; %d requests had it", placeholder, len(theVendors(t).with(placeholder)))
	}
}

// checkTree: the bug is mended, the new file is there, the owner of the tree owns
// both, and all else is as it was.
func (j given) checkTree(t *testing.T, before, after map[string]string) {
	t.Helper()
	want := slices.Sorted(slices.Values(append([]string{"docs/notes", "sum.sh"}, j.leaves...)))
	if got := changed(before, after); !slices.Equal(got, want) {
		t.Errorf("what changed is %q, want %q", got, want)
		for _, name := range got {
			t.Logf("%s: %.200q, then %.200q", name, before[name], after[name])
		}
	}
	if want := strings.Replace(before["sum.sh"], "$1 - $2", "$1 + $2", 1); after["sum.sh"] != want {
		t.Errorf("sum.sh is %q, want %q", after["sum.sh"], want)
	}
	if want := regexp.MustCompile(fmt.Sprintf(`^-rw-r--r-- %d:%d it subtracted\n?$`, accountID, accountID)); !want.MatchString(after["docs/notes"]) {
		t.Errorf("docs/notes is %q", after["docs/notes"])
	}
}

// again: the agent's sandbox starts from memory, about as fast as a shell's in the
// image of its environment, with the same secret.
func (a *account) again(name, secret string) {
	a.t.Helper()
	var agent, shell []time.Duration
	for range 3 {
		agent = append(agent, a.start(name, "--secret", secret))
		shell = append(shell, a.start("shell", "--secret", secret, "--image", baseOf(a.t, name)))
	}
	ratio := float64(slices.Min(agent)) / float64(slices.Min(shell))
	a.t.Logf("starts of %s in %v, of shell in %v: %.2f times", name, agent, shell, ratio)
	if ratio > 3 { // loose, since other tests run meanwhile: make bench measures it
		a.t.Errorf("a start of %s takes %.1f times as long as one of shell", name, ratio)
	}
}

// start is how long it takes to run nothing.
func (a *account) start(words ...string) time.Duration {
	a.t.Helper()
	began := time.Now()
	r := a.sbRun(runTime, append(words, "--", "true")...)
	took := time.Since(began)
	r.ok(a.t)
	return took.Round(10 * time.Millisecond)
}

// baseOf is the image that an agent's environment is made of.
func baseOf(t *testing.T, name string) string {
	t.Helper()
	p, err := profile.Open(t.TempDir()).Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p.Image[0]
}
