package live

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/testscripts/job"
	"sb/testscripts/model"
)

// hidden is in every secret of these tests, and in all that a user's agents keep on
// this host: where it is not, none of them is. The scripts of the guest have it in
// two pieces.
const hidden = "Zk7Qw3Vx9Tn5Bp2H"

// controls are what the guest itself plants, in a file, in the memory of a living
// process and in an environment. It has them in two pieces too.
var controls = []string{"control-in-a-file", "control-in-a-heap", "control-in-an-environment"}

// agentScript runs a client as an ordinary user of the guest. While the client waits
// for its last answer, root writes to disk what is not there yet, and looks for the
// hidden word in every file and environment, with a search that also finds what was
// planted.
const agentScript = `
printf '%%s%%s' control- in-a-file >/root/planted
env "PLANTED=$(printf '%%s%%s' control- in-an-environment)" sleep 1000 & planted=$!
( heap=$(printf '%%s%%s' control- in-a-heap); while [ -d /proc/$planted ]; do sleep 1; done; echo "$heap" >/dev/null ) &
mkdir -p $HOME; chown -R 1000:1000 $HOME
echo "== placeholder"; %s
echo up
setpriv --reuid=1000 --regid=1000 --clear-groups env USER=agent TERM=dumb sh -c '%s' </dev/null >said 2>&1 &
agent=$!
read -r next; sync; echo "== synced"
read -r next
printf '%%s%%s\n' %s %s control- in-a >/dev/shm/words
echo "== files"; grep -rlaF -f /dev/shm/words /bin /etc /home /lib* /mnt /opt /root /run /sbin /srv /tmp /usr /var "$PWD" 2>/dev/null
echo "== environments"; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -aF -f /dev/shm/words
echo "== searched"
wait $agent; echo "== exit"; echo $?
kill $planted; wait; echo "== end"`

// bugFix is what the model has the client do to mend the bug: run the test, read, edit,
// and run the test again.
func bugFix(dir string) []model.Action {
	return []model.Action{
		{Do: "sh", Command: "cd " + dir + " && sh test.sh"},
		{Do: "read", Path: dir + "/sum.sh"},
		{Do: "edit", Path: dir + "/sum.sh", Old: "$1 - $2", New: "$1 + $2"},
		{Do: "sh", Command: "cd " + dir + " && sh test.sh"},
	}
}

// agentRun is a client's run in a sandbox.
type agentRun struct {
	secret        string // of sb-run
	shows         string // shows the placeholder, in sh in the guest
	command       string // of the client in the guest, in sh without '
	header, value string // what its server must see
	url           string // of a turn of its conversation
	env           []string
}

// play leads the client through the bug, and checks everything that holds for any.
func (a agentRun) play(t *testing.T, config string) *result {
	t.Helper()
	work := bugDir(t)
	waits, goOn := make(chan bool), make(chan bool)
	var once sync.Once
	steps := bugFix(work)
	theVendors(t).Add(model.Task{Header: a.header, Value: a.value, Steps: steps, End: "It passes now.", Before: func(step int) {
		if step == len(steps) {
			once.Do(func() { close(waits); <-goOn })
		}
	}})
	stdin, orders, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer orders.Close()
	env, state := homes(t)
	writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), config)
	s := startIn(t, box{flags: []string{"--memory=1g", "-e", "HOME=/home/agent", "-v", packagesDir() + ":/clients:ro", "-w", work, "--secret", a.secret}, stdin: stdin,
		script: fmt.Sprintf(agentScript, a.shows, a.command, hidden[:7], hidden[7:])}, append(env, a.env...), state)
	began := time.Now()
	awaitLast(t, s, waits, work)
	t.Logf("the client was at its last step after %v", time.Since(began).Round(100*time.Millisecond))
	placeholder, _, _ := strings.Cut((&result{t: t, stdout: s.out.String()}).section("placeholder"), "\n")
	searchOutside(t, s, orders, placeholder)
	fmt.Fprintln(orders, "search")
	s.until("a search inside", func() bool { return strings.Contains(s.out.String(), "== searched") })
	close(goOn)
	if code := s.wait(runTime); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("it ended after %v; its servers saw%s", time.Since(began).Round(100*time.Millisecond), shown(theVendors(t).with(a.value)))
	r := &result{t: t, stdout: s.out.String(), stderr: s.errs.String(), audit: readAudit(t, state)}
	a.checkServers(t, placeholder)
	checkGuest(t, r, work)
	return r
}

// awaitLast waits for the client's last step as long as its servers hear of it.
func awaitLast(t *testing.T, s *started, waits chan bool, work string) {
	t.Helper()
	for heard := -1; heard < len(theVendors(t).Seen()); {
		heard = len(theVendors(t).Seen())
		select {
		case <-waits:
			return
		case <-s.ended:
			t.Fatal("the sandbox ended before the client's last step")
		case <-time.After(runTime):
		}
	}
	said, _ := os.ReadFile(filepath.Join(work, "said"))
	t.Fatalf("nothing was heard of the client for %v; it says\n%s\nthe servers saw%s", runTime, said, shown(theVendors(t).Seen()))
}

// bugDir is a workspace with the bug, for whoever has whatever uid in the guest.
func bugDir(t *testing.T) string {
	dir := t.TempDir()
	os.Chmod(dir, 0o777)
	for name, text := range job.Bug {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		os.Chmod(path, 0o666)
	}
	return dir
}

// searchOutside looks for the hidden word in all memory of the machine, in its disks,
// and in the tools that have no business with it.
func searchOutside(t *testing.T, s *started, orders io.Writer, placeholder string) {
	t.Helper()
	began := time.Now()
	qemu := s.pidOf("qemu-system-x86_64")
	look := words(hidden, append(slices.Clone(controls), placeholder)...)
	found, read := look.inMemory(t, qemu)
	want := slices.Sorted(slices.Values(append(slices.Clone(controls), placeholder)))
	if got := names(found); !slices.Equal(got, want) {
		t.Errorf("the machine's memory, of which %d bytes were read, holds %q, want %q", read, got, want)
	}
	fmt.Fprintln(orders, "sync")
	s.until("a written disk", func() bool { return strings.Contains(s.out.String(), "== synced") })
	onDisk, files := map[string]bool{}, heldFiles(qemu)
	for _, f := range files {
		part, n := look.inFile(t, f)
		for name := range part {
			onDisk[name] = true
		}
		read += n
	}
	if !onDisk[controls[0]] || len(look.hidden(onDisk)) > 0 {
		t.Errorf("the %d files of the machine's hold %q, want %q and nothing hidden", len(files), names(onDisk), controls[0])
	}
	for _, tool := range []string{"sb-run", "sb-gate", "sb-dns", "sb-vm"} {
		pid := s.cmd.Process.Pid
		if tool != "sb-run" {
			pid = s.pidOf(tool)
		}
		found, n := words(hidden, tool).inMemory(t, pid)
		if got := names(found); !slices.Equal(got, []string{tool}) {
			t.Errorf("the memory of %s, of which %d bytes were read, holds %q", tool, n, got)
		}
		read += n
	}
	t.Logf("%d MB were looked through outside in %v", read>>20, time.Since(began).Round(100*time.Millisecond))
}

// checkServers: the servers led the client through each step, by the value, and never
// saw the placeholder, which they would have refused.
func (a agentRun) checkServers(t *testing.T, placeholder string) {
	t.Helper()
	v := theVendors(t)
	var steps []int
	var last string
	for _, q := range v.with(a.value) {
		if q.Step >= 0 && q.Header.Get(a.header) != a.value {
			t.Errorf("a turn has the value elsewhere: %v", q.Header)
		}
		if q.Status == 200 && len(q.Tools) > 0 && !slices.Contains(steps, q.Step) {
			steps, last = append(steps, q.Step), q.Last
		}
	}
	if !slices.Equal(steps, []int{0, 1, 2, 3, 4}) || !strings.Contains(last, "the test passes") {
		t.Errorf("steps %v, the last test says %q; the servers saw %s", steps, last, shown(v.Seen()))
	}
	if len(placeholder) < 30 || len(v.with(placeholder)) > 0 {
		t.Errorf("the placeholder is %q; %d requests had it", placeholder, len(v.with(placeholder)))
	}
	if wrong, right := v.answers(t, a.url, a.header, strings.ReplaceAll(a.value, hidden, "")), v.answers(t, a.url, a.header, a.value); wrong != 401 || right != 200 {
		t.Errorf("control: the server answers %d to another value and %d to the right one", wrong, right)
	}
}

// checkGuest: the task is done, and nothing that the guest could see or say has the
// hidden word.
func checkGuest(t *testing.T, r *result, work string) {
	t.Helper()
	fixed, err := os.ReadFile(filepath.Join(work, "sum.sh"))
	if err != nil || !bytes.Contains(fixed, []byte("$1 + $2")) {
		t.Errorf("sum.sh: %v\n%s", err, fixed)
	}
	r.says(t, "exit", `^0$`)
	if said, err := os.ReadFile(filepath.Join(work, "said")); !bytes.Contains(said, []byte("It passes now.")) {
		t.Errorf("the client says %q (%v)", said, err)
	}
	if got := strings.Fields(r.section("files")); !slices.Equal(got, []string{"/root/planted"}) {
		t.Errorf("the search of the guest's files finds %q, want what was planted", got)
	}
	if got := r.section("environments"); got != "PLANTED="+controls[2] {
		t.Errorf("the search of the guest's environments finds %q, want what was planted", got)
	}
	if strings.Contains(r.stdout+r.stderr+r.auditText(), hidden) {
		t.Error("a secret is in what the run said")
	}
	if found := words(hidden).inTree(t, work); len(found) > 0 {
		t.Errorf("a secret is in the workspace: %v", found)
	}
	for _, l := range r.audit {
		// A handshake that the client gave up is not one that was refused.
		if l.Gate == audit.Broker && l.Verdict == audit.Deny && l.Reason != reason.GuestHandshake {
			t.Errorf("the client was refused what it does of itself: %s", l)
		}
	}
}

// hidden are the forms of the hidden word among what was found.
func (s searched) hidden(found map[string]bool) (list []string) {
	for _, name := range names(found) {
		if strings.HasPrefix(name, hidden) {
			list = append(list, name)
		}
	}
	return list
}

func shown(all []model.Request) string {
	var b strings.Builder
	for _, q := range all {
		fmt.Fprintf(&b, "\n  %s %d %s %s%s step %d", q.Time.Format("15:04:05.0"), q.Status, q.Method, q.Host, q.Path, q.Step)
	}
	return b.String()
}
