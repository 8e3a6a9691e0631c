package work

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sb/lib/say"
	"sb/sb-run/repo"
)

func userGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=U", "-c", "user.email=u@example.org"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func commit(t *testing.T, dir, file, text string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	userGit(t, dir, "add", "-A")
	userGit(t, dir, "commit", "-qm", text)
	return userGit(t, dir, "rev-parse", "HEAD")
}

// lab is a repository of the user's, a clone of it as a guest's, and where work is kept.
type lab struct {
	t           *testing.T
	host, guest string
	repo        *repo.Repo
	dir         Dir
}

func newLab(t *testing.T) *lab {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, host: top + "/host", guest: top + "/guest", dir: Dir(top + "/work")}
	os.Mkdir(l.host, 0o755)
	os.Mkdir(string(l.dir), 0o700)
	userGit(t, l.host, "init", "-q", "-b", "main")
	commit(t, l.host, "a", "one")
	userGit(t, l.host, "branch", "other")
	commit(t, l.host, "a", "two")
	if l.repo, err = repo.Find(l.host); err != nil {
		t.Fatal(err)
	}
	userGit(t, top, "clone", "-q", "--no-local", l.host, l.guest)
	userGit(t, l.guest, "branch", "other", "origin/other")
	return l
}

// stream is upload-pack in the guest's repository.
type stream struct {
	io.Reader
	io.Writer
}

func (l *lab) upload() io.ReadWriter {
	cmd := exec.Command("git", "upload-pack", l.guest)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmd.Start(); err1 != nil || err2 != nil || err != nil {
		l.t.Fatal(err1, err2, err)
	}
	l.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return stream{out, in}
}

func (l *lab) keep(name string, guest io.ReadWriter) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return l.dir.Keep(ctx, name, l.repo, guest)
}

// TestKeep: what was done in the clone comes into the user's repository by name, and
// nothing else there changes.
func TestKeep(t *testing.T) {
	l := newLab(t)
	if n, err := l.keep("run-0", l.upload()); n != 0 || err != nil {
		t.Fatalf("nothing was done: %d, %v", n, err)
	}
	mine := commit(t, l.guest, "b", "in the guest")
	userGit(t, l.guest, "branch", "topic/x")
	if n, err := l.keep("run-1", l.upload()); n != 2 || err != nil {
		t.Fatalf("%d branches, %v", n, err)
	}
	if packs, _ := filepath.Glob(string(l.dir) + "/run-1.git/objects/pack/*.pack"); len(packs) != 1 {
		t.Errorf("packs: %v", packs)
	} else if st, _ := os.Stat(packs[0]); st.Size() > 2000 {
		t.Errorf("%d bytes were kept: more than what is new", st.Size())
	}
	before := userGit(t, l.host, "rev-parse", "HEAD") + userGit(t, l.host, "status", "--porcelain")
	to, got, err := l.dir.Import(context.Background(), "run-1", "")
	if err != nil || to != l.host+"/.git" || len(got) != 2 || got[0] != (Imported{"refs/remotes/sb/run-1/main", mine}) {
		t.Fatalf("%s %v %v", to, got, err)
	}
	if text := userGit(t, l.host, "show", "sb/run-1/topic/x:b"); text != "in the guest" {
		t.Errorf("it has %q", text)
	}
	userGit(t, l.host, "fsck", "--strict")
	if after := userGit(t, l.host, "rev-parse", "HEAD") + userGit(t, l.host, "status", "--porcelain"); after != before {
		t.Errorf("the tree was %s, is %s", before, after)
	}
	if _, got, err := l.dir.Import(context.Background(), "run-1", "main"); err != nil || len(got) != 1 {
		t.Errorf("one branch, again: %v %v", got, err)
	}
	for name, only := range map[string]string{"run-1": "none", "run-2": ""} {
		if _, _, err := l.dir.Import(context.Background(), name, only); err == nil {
			t.Errorf("%s %s was found", name, only)
		}
	}
	for i := range maxKept + 3 {
		if _, err := l.keep(fmt.Sprintf("more-%d", i), l.upload()); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := l.dir.List(); err != nil || len(all) != maxKept || all[0].From != l.host+"/.git" {
		t.Errorf("kept: %v %v", all, err)
	}
}

// TestOddNames: what git takes for a branch's name is kept and brought, with all others,
// and acts on no terminal.
func TestOddNames(t *testing.T) {
	l := newLab(t)
	mine := commit(t, l.guest, "b", "in the guest")
	odd := map[string]string{ // as the guest wrote it: as it stands in the user's repository
		"a\u00a0b": "a%C2%A0b", "a\u2003b\u0085c": "a%E2%80%83b%C2%85c", "\u009b2J\u202e": "%C2%9B2J%E2%80%AE", "\xff\xfe": "%FF%FE",
		"caf\u00e9\u65e5": "caf\u00e9\u65e5", "100%": "100%", "\"quoted\"": "\"quoted\"", "$(x)": "$(x)", "HEAD": "HEAD", "refs/heads/main": "refs/heads/main", "@": "@",
	}
	for name := range odd {
		userGit(t, l.guest, "update-ref", "refs/heads/"+name, mine)
	}
	if n, err := l.keep("run-1", l.upload()); n != len(odd)+1 || err != nil {
		t.Fatalf("%d branches, %v", n, err)
	}
	before := userGit(t, l.host, "rev-parse", "HEAD", "main", "other")
	if _, got, err := l.dir.Import(context.Background(), "run-1", ""); err != nil || len(got) != len(odd)+1 {
		t.Fatalf("%v %v", got, err)
	}
	for _, asked := range []string{"\u009b2J\u202e", "%C2%9B2J%E2%80%AE"} {
		if _, got, err := l.dir.Import(context.Background(), "run-1", asked); err != nil || len(got) != 1 || got[0].Ref != "refs/remotes/sb/run-1/%C2%9B2J%E2%80%AE" {
			t.Errorf("%q alone: %v %v", asked, got, err)
		}
	}
	odd["main"] = "main"
	for _, name := range odd {
		if id := userGit(t, l.host, "rev-parse", "--verify", "refs/remotes/sb/run-1/"+name); id != mine {
			t.Errorf("%q is %s, want %s", name, id, mine)
		}
	}
	if after := userGit(t, l.host, "rev-parse", "HEAD", "main", "other"); after != before {
		t.Errorf("the user's branches were %s, are %s", before, after)
	}
}

// TestSameShownName: of branches that have one name in the user's repository none is
// brought with all, and each alone.
func TestSameShownName(t *testing.T) {
	l := newLab(t)
	one, other := commit(t, l.guest, "b", "one"), commit(t, l.guest, "b", "other")
	userGit(t, l.guest, "update-ref", "refs/heads/\u0085", one)
	userGit(t, l.guest, "update-ref", "refs/heads/%C2%85", other)
	if _, err := l.keep("run-1", l.upload()); err != nil {
		t.Fatal(err)
	}
	before := userGit(t, l.host, "for-each-ref")
	if _, got, err := l.dir.Import(context.Background(), "run-1", ""); err == nil || userGit(t, l.host, "for-each-ref") != before {
		t.Errorf("all: %v %v", got, err)
	} else if hint := new(say.Error); !errors.As(err, &hint) || !strings.Contains(strings.Join(hint.Hints, " "), "sb-run fetch run-1 BRANCH") {
		t.Errorf("all: %v, without what to do next", err)
	}
	for name, want := range map[string]string{"\u0085": one, "%C2%85": other} {
		if _, got, err := l.dir.Import(context.Background(), "run-1", name); err != nil || len(got) != 1 || got[0].ID != want {
			t.Errorf("%q: %v %v, want %s", name, got, err, want)
		}
	}
}

// TestNoConfiguration: no key and no hook of the clone's or of the user's repository has
// a program run here.
func TestNoConfiguration(t *testing.T) {
	l := newLab(t)
	commit(t, l.guest, "b", "in the guest")
	ran := string(l.dir) + "-ran"
	program := string(l.dir) + "-program"
	os.WriteFile(program, []byte("#!/bin/sh\n: >"+ran+"\n"), 0o755)
	guest := l.upload() // in there its own configuration holds
	for _, key := range []string{"core.fsmonitor", "core.sshCommand", "core.alternateRefsCommand", "diff.external", "gpg.program", "credential.helper"} {
		userGit(t, l.host, "config", key, program)
	}
	userGit(t, l.host, "config", "gc.auto", "1")
	for _, hook := range []string{"reference-transaction", "post-update", "pre-auto-gc", "post-checkout", "post-merge", "pre-receive", "update"} {
		os.Mkdir(l.host+"/.git/hooks", 0o755)
		os.WriteFile(l.host+"/.git/hooks/"+hook, []byte("#!/bin/sh\n: >"+ran+"\n"), 0o755)
	}
	var err error
	if l.repo, err = repo.Find(l.host); err != nil {
		t.Fatal(err)
	}
	os.Remove(ran)
	if n, err := l.keep("run-1", guest); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, _, err := l.dir.Import(context.Background(), "run-1", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program ran")
	}
	userGit(t, l.host, "branch", "by-hand")
	if _, err := os.Stat(ran); err != nil {
		t.Error("the hooks would not show that they ran")
	}
}

// pkt is a line of git's protocol (gitprotocol-common(5)).
func pkt(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// object is one of a pack: its type (gitformat-pack(5)) and bytes.
type object struct {
	kind byte
	data string
}

func (o object) id() string {
	name := map[byte]string{1: "commit", 2: "tree", 3: "blob"}[o.kind]
	sum := sha1.Sum([]byte(fmt.Sprintf("%s %d\x00%s", name, len(o.data), o.data)))
	return hex.EncodeToString(sum[:])
}

func pack(objects ...object) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	binary.Write(&b, binary.BigEndian, [2]uint32{2, uint32(len(objects))})
	for _, o := range objects {
		n := len(o.data)
		head := o.kind<<4 | byte(n&15)
		for n >>= 4; n > 0; n >>= 7 {
			b.WriteByte(head | 0x80)
			head = byte(n & 0x7f)
		}
		b.WriteByte(head)
		z := zlib.NewWriter(&b)
		io.WriteString(z, o.data)
		z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

// tree is a commit of a tree with one entry, and what they need.
func tree(mode, name string, blob object) (all []object, id string) {
	raw, _ := hex.DecodeString(blob.id())
	tr := object{2, mode + " " + name + "\x00" + string(raw)}
	c := object{1, "tree " + tr.id() + "\nauthor U <u@example.org> 1 +0000\ncommitter U <u@example.org> 1 +0000\n\nx\n"}
	return []object{blob, tr, c}, c.id()
}

// script is a guest that says what it likes: refs, and after the client's "done" the rest.
func script(refs, rest string) io.ReadWriter {
	r, w := io.Pipe()
	asked, ask := io.Pipe()
	go func() {
		io.WriteString(w, refs)
		seen := []byte{}
		for b := make([]byte, 4096); !bytes.Contains(seen, []byte("0009done")); {
			n, err := asked.Read(b)
			if err != nil {
				break
			}
			seen = append(seen, b[:n]...)
		}
		io.WriteString(w, rest)
		w.Close()
		io.Copy(io.Discard, asked)
	}()
	return stream{r, ask}
}

func says(id, ref string) string { return pkt(id+" "+ref+"\x00ofs-delta\n") + "0000" }

// TestHostile: what a guest's upload-pack can say that a repository of ours must not
// hold is refused, and nothing is kept of it. The same form with nothing wrong is kept.
func TestHostile(t *testing.T) {
	l := newLab(t)
	blob := object{3, "text\n"}
	good, goodID := tree("100644", "file", blob)
	sent := func(objects []object) string { return pkt("NAK\n") + string(pack(objects...)) }
	n := 0
	try := func(guest io.ReadWriter) (int, error) {
		n++
		return l.keep(fmt.Sprintf("run-%d", n), guest)
	}
	if n, err := try(script(says(goodID, "refs/heads/x"), sent(good))); n != 1 || err != nil {
		t.Fatalf("what is well-formed: %d, %v", n, err)
	}
	kept, _ := l.dir.List()
	for name, entry := range map[string][2]string{
		"a .git": {"100644", ".git"}, "a link by that name": {"120000", ".git"}, "a .GIT": {"100644", ".GIT"}, "a .g\u200cit": {"40000", ".g\u200cit"},
		"a git~1": {"40000", "git~1"}, "a way up": {"100644", ".."}, "a path": {"100644", "a/b"}, "a .gitmodules that is a link": {"120000", ".gitmodules"},
	} {
		objects, id := tree(entry[0], entry[1], blob)
		if _, err := try(script(says(id, "refs/heads/x"), sent(objects))); err == nil {
			t.Errorf("%s was kept", name)
		}
	}
	modules, modulesID := tree("100644", ".gitmodules", object{3, "[submodule \"a\"]\n\tpath = a\n\turl = -u./x\n"})
	cut := sent(good)
	for name, guest := range map[string]io.ReadWriter{
		"an option as a submodule's address": script(says(modulesID, "refs/heads/x"), sent(modules)),
		"a pack without its blob":            script(says(goodID, "refs/heads/x"), sent(good[1:])),
		"a pack without what it is for":      script(says(goodID, "refs/heads/x"), sent(good[:1])),
		"half a pack":                        script(says(goodID, "refs/heads/x"), cut[:len(cut)-30]),
		"a blob as a branch":                 script(says(blob.id(), "refs/heads/x"), sent([]object{blob})),
		"noise":                              stream{strings.NewReader(strings.Repeat("\xff\x00zz", 1000)), io.Discard},
		"nothing":                            stream{strings.NewReader(""), io.Discard},
	} {
		if _, err := try(guest); err == nil {
			t.Errorf("%s was kept", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	for _, ref := range []string{"refs/heads/../../x", "refs/heads/../../../../x", "refs/heads/a..b", "refs/heads/x.lock", "refs/heads/-x", "refs/heads/a b", "refs/hooks/x", "refs/heads/\x1b[2J", "HEAD", "config"} {
		if k, err := try(script(says(goodID, ref), sent(good))); err == nil && k != 0 {
			all, _ := branches(context.Background(), l.dir.path(fmt.Sprintf("run-%d", n)))
			for _, b := range all {
				if exec.Command("git", "check-ref-format", "--branch", b.name).Run() != nil && b.name != "-x" {
					t.Errorf("%q was kept as %q", ref, b.name)
				}
			}
			os.RemoveAll(l.dir.path(fmt.Sprintf("run-%d", n)))
		}
	}
	if now, _ := l.dir.List(); len(now) != len(kept) {
		t.Errorf("kept: %v", now)
	}
	if left, _ := filepath.Glob(string(l.dir) + "/*.new"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if out, _ := filepath.Glob(filepath.Dir(string(l.dir)) + "/x*"); len(out) > 0 {
		t.Errorf("written outside: %v", out)
	}
}

// TestGitIsBounded: git has so much memory, whatever it does with what a guest made, and
// maps and resolves little at a time.
func TestGitIsBounded(t *testing.T) {
	made := t.TempDir() + "/r"
	if _, err := git(t.Context(), made, "", "init", "-q", "--bare", made); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"ulimit -v": fmt.Sprint(maxMemory), "git config pack.threads": "1", "git config core.packedGitLimit": "256m"} {
		got, err := git(t.Context(), made, "", "-c", "alias.in=!"+name, "in")
		if err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, %v; want %s", name, got, err, want)
		}
	}
	if _, err := git(t.Context(), made, "", "-c", "a.b=c", "rev-parse", "-q", "--verify", "none"); err == nil || !strings.Contains(err.Error(), "git rev-parse: exit status") {
		t.Errorf("%v", err)
	}
}

// TestLast: of what git says the end is kept, however it comes.
func TestLast(t *testing.T) {
	l := &last{}
	if _, err := run(&exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "yes 0123456 | head -c 8000000 >&2; echo end >&2; exit 1", "git", "x"}}, ""); err == nil || len(err.Error()) > 2200 || !strings.HasSuffix(err.Error(), "; end") {
		t.Errorf("%.2000v", err)
	}
	if io.Copy(l, strings.NewReader(strings.Repeat("x", 1<<20)+"end")); len(l.String()) != 1000 || !strings.HasSuffix(l.String(), "end") {
		t.Errorf("%d bytes are kept", len(l.String()))
	}
}

type endless struct{ line string }

func (e endless) Read(b []byte) (int, error) { return copy(b, e.line), nil }

// TestEndless: a guest that says more than the bound is heard no further, and one within
// it is.
func TestEndless(t *testing.T) {
	l := newLab(t)
	made := l.dir.path("x") + ".new"
	if err := l.dir.prepare(t.Context(), made, l.repo); err != nil {
		t.Fatal(err)
	}
	line := pkt(strings.Repeat("1", 40) + " refs/heads/x\n")
	err := fetch(t.Context(), made, stream{endless{line}, io.Discard}, 1<<20)
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("it ended with %v", err)
	}
	if err := fetch(t.Context(), made, l.upload(), 1<<20); err != nil {
		t.Errorf("one within the bound: %v", err)
	}
}
