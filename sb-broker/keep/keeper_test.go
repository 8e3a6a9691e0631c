package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/binding"
	"sb/lib/say"

	"github.com/zalando/go-keyring"
	"golang.org/x/sys/unix"
)

// testKeeper is a keeper with a store of its own, without a keychain and sign-ins.
func testKeeper(t *testing.T) *keeper {
	t.Helper()
	absent := func() error { return errNoKeychain }
	return &keeper{services: binding.BuiltIn(), dir: t.TempDir(), given: map[int][]byte{}, keys: keychain{there: absent, limit: time.Second},
		settings: binding.Settings{Sources: map[string]binding.Source{}}}
}

func (k *keeper) source(t *testing.T, name string, words any) {
	t.Helper()
	var s binding.Source
	if err := s.UnmarshalTOML(words); err != nil {
		t.Fatal(err)
	}
	k.settings.Sources[name] = s
}

// wantRead reads a secret that must be there.
func wantRead(t *testing.T, k *keeper, name, want string) {
	t.Helper()
	got, _, err := k.read(context.Background(), name)
	if err != nil || string(got) != want {
		t.Errorf("%s: %q, %v; want %q", name, got, err, want)
	}
}

// wantFault reads a secret that must fail with that code, and whose error names it.
func wantFault(t *testing.T, k *keeper, name, code, text string) {
	t.Helper()
	got, _, err := k.read(context.Background(), name)
	if err == nil || codeOf(err) != code || !strings.Contains(err.Error(), "secret "+name) || !strings.Contains(err.Error(), text) || got != nil {
		t.Errorf("%s: %q, %v (%s); want %s, %q", name, got, err, codeOf(err), code, text)
	}
}

// TestSources: each kind of source, and what is wrong with each.
func TestSources(t *testing.T) {
	k := testKeeper(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	if err := os.WriteFile(file, []byte("of-a-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	t.Setenv("KEEPER_TEST", "of-a-variable")
	k.given[7] = []byte("of-a-descriptor\n")
	k.source(t, "env", "env:KEEPER_TEST")
	k.source(t, "file", "file:"+file)
	k.source(t, "home", "file:~/key")
	k.source(t, "fd", "fd:7")
	k.source(t, "cmd", "cmd:echo of a command")
	k.source(t, "words", []any{"cmd:printf", "%s-%s", "a b", "cdefg"})
	for name, want := range map[string]string{"env": "of-a-variable", "file": "of-a-file", "home": "of-a-file", "fd": "of-a-descriptor", "cmd": "of a command", "words": "a b-cdefg"} {
		wantRead(t, k, name, want)
		wantRead(t, k, name, want) // and again: it is read at each request
	}
	k.source(t, "env", "env:KEEPER_TEST_2")
	k.source(t, "file", "file:"+dir+"/none")
	k.source(t, "home", "file:"+dir)
	k.source(t, "fd", "fd:8")
	k.source(t, "cmd", "cmd:false")
	k.source(t, "words", []any{"cmd:sh", "-c", "echo value; echo the vault is sealed >&2; exit 3"})
	k.source(t, "none", "cmd:no-such-program-at-all")
	wantFault(t, k, "env", "missing", "the variable KEEPER_TEST_2 is not set")
	wantFault(t, k, "file", "missing", "no such file")
	wantFault(t, k, "home", "failed", "is a directory")
	wantFault(t, k, "fd", "missing", "descriptor 8 is not open")
	wantFault(t, k, "cmd", "failed", "false: exit status 1")
	wantFault(t, k, "words", "failed", "sh: exit status 3: the vault is sealed")
	wantFault(t, k, "none", "failed", "executable file not found")
	wantFault(t, k, "nowhere", "missing", "there is none")
}

// TestNotGiven: a descriptor that this process opened itself was not given by the user.
func TestNotGiven(t *testing.T) {
	k := testKeeper(t)
	own, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	given, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.WriteString("of-a-descriptor")
	w.Close()
	n, err := unix.Dup(int(given.Fd())) // as one that was inherited
	if err != nil {
		t.Fatal(err)
	}
	k.source(t, "own", fmt.Sprintf("fd:%d", own.Fd()))
	k.source(t, "given", fmt.Sprintf("fd:%d", n))
	want := fmt.Sprintf("secret own (fd:%d): descriptor %d is not open", own.Fd(), own.Fd())
	if err := k.takeGiven(nil, []string{"own"}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := k.takeGiven(nil, []string{"given"}); err != nil {
		t.Error(err)
	}
	wantRead(t, k, "given", "of-a-descriptor")
}

// TestHangingCommand: a command that does not end is ended with all that it
// started, also where its output is held open.
func TestHangingCommand(t *testing.T) {
	k := testKeeper(t)
	pids := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := fromCommand(ctx, []string{"sh", "-c", "sleep 1000 & echo $! >" + pids + "; wait"})
	if codeOf(err) != "timeout" {
		t.Errorf("%v", err)
	}
	pid, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what the command started still runs")
		}
	}
	k.source(t, "cmd", "cmd:echo in-good-time") // the control
	wantRead(t, k, "cmd", "in-good-time")
}

// TestCommandIsElsewhere: a command reads nothing of the directory that sb-run was
// called in, which the guest may share.
func TestCommandIsElsewhere(t *testing.T) {
	k := testKeeper(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("planted", []byte("from-the-guest"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.source(t, "here", []any{"cmd:sh", "-c", "cat planted || echo none-is-here"})
	wantRead(t, k, "here", "none-is-here")
}

// TestValues: what cannot stand in a header field is no secret, and its error does
// not say what it is.
func TestValues(t *testing.T) {
	k := testKeeper(t)
	for _, c := range []struct{ value, text string }{
		{"", "it is empty"},
		{"\n", "it is empty"},
		{"sesame\nsesame", "line break"},
		{"sesame\rsesame", "line break"},
		{"open sesame\x00", "no visible ASCII"},
		{"open sesam\xc3\xa9", "no visible ASCII"},
		{" open sesame", "blank"},
		{"sesam", "less than 8 bytes"},
		{strings.Repeat("sesame", 1<<18), "more than 16384 bytes"},
	} {
		k.given[7] = []byte(c.value)
		k.source(t, "x", "fd:7")
		wantFault(t, k, "x", "bad-value", c.text)
		if _, _, err := k.read(context.Background(), "x"); strings.Contains(err.Error(), "sesam") {
			t.Errorf("the error says the value: %v", err)
		}
	}
	k.given[7] = []byte(strings.Repeat("s", binding.MaxSecret) + "\n")
	wantRead(t, k, "x", strings.Repeat("s", binding.MaxSecret))
}

// TestKeychain: what the keychain has, does not have, and does not answer.
func TestKeychain(t *testing.T) {
	k := testKeeper(t)
	kept, locked := map[string]string{}, make(chan struct{})
	k.keys = keychain{
		there: func() error { return nil },
		load: func(_, name string) (string, error) {
			if v, ok := kept[name]; ok {
				return v, nil
			}
			return "", keyring.ErrNotFound
		},
		save:  func(_, name, v string) error { kept[name] = v; return nil },
		drop:  func(_, name string) error { delete(kept, name); return nil },
		limit: 50 * time.Millisecond,
	}
	ctx := context.Background()
	if kind, err := k.keep(ctx, "a", []byte("number-one")); err != nil || kind != inKeychain {
		t.Fatal(kind, err)
	}
	wantRead(t, k, "a", "number-one")
	if files, _ := os.ReadDir(k.dir); len(files) != 1 || files[0].Name() != "a.keychain" {
		t.Errorf("the store holds %v", files)
	}
	delete(kept, "a")
	wantFault(t, k, "a", "missing", "not in the keychain any more")
	load := k.keys.load
	k.keys.load = func(_, _ string) (string, error) { <-locked; return "", nil }
	wantFault(t, k, "a", "locked", "the keychain did not answer within 50ms")
	close(locked)
	for text, code := range map[string]string{"failed to unlock correct collection '/x'": "locked", "The name org.freedesktop.secrets was not provided by any .service files": "failed", "broken pipe": "failed"} {
		k.keys.load = func(_, _ string) (string, error) { return "", errors.New(text) }
		wantFault(t, k, "a", code, "keychain")
		var told *say.Error
		if _, _, err := k.read(ctx, "a"); !errors.As(err, &told) || len(told.Hints) != 1 {
			t.Errorf("%v: nothing is said of what to do", err)
		}
	}
	k.keys.load = load
	kept["a"] = "number-two"
	wantRead(t, k, "a", "number-two")
	// What moves to a file is in the keychain no more.
	k.settings.Store.Kind = "file"
	t.Setenv("KEEPER_KEY", "a passphrase")
	if err := k.settings.Store.Key.UnmarshalTOML("env:KEEPER_KEY"); err != nil {
		t.Fatal(err)
	}
	if kind, err := k.keep(ctx, "a", []byte("number-three")); err != nil || kind != inFile || len(kept) != 0 {
		t.Fatal(kind, err, kept)
	}
	wantRead(t, k, "a", "number-three")
	if err := k.forget(ctx, "a", k.kept("a")); err != nil {
		t.Fatal(err)
	}
	// A session bus without a keychain is as none, unless one is asked for.
	k.settings.Store.Kind = ""
	k.keys.save = func(_, _, _ string) error { return errors.New("The name was not provided by any .service files") }
	if kind, err := k.keep(ctx, "b", []byte("number-four")); err != nil || kind != inFile {
		t.Error(kind, err)
	}
	k.settings.Store.Kind = "keychain"
	if kind, err := k.keep(ctx, "c", []byte("number-five")); err == nil || k.kept("c") != "" {
		t.Error(kind, err)
	}
	wantFault(t, k, "a", "missing", "there is none")
}

// TestFiles: the store's files open with the key that they were kept with, an
// identity or a passphrase, and with no other.
func TestFiles(t *testing.T) {
	ctx := context.Background()
	const identity = "# made by age-keygen\nAGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX\n"
	for _, key := range []string{identity, "correct horse battery staple\n"} {
		k := testKeeper(t)
		t.Setenv("KEEPER_KEY", key)
		if err := k.settings.Store.Key.UnmarshalTOML("env:KEEPER_KEY"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.keep(ctx, "a", []byte("sesame88")); err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(k.dir, "*"))
		for _, f := range files {
			text, err := os.ReadFile(f)
			st, _ := os.Stat(f)
			if err != nil || bytes.Contains(text, []byte("sesame88")) || st.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %o, %v", f, st.Mode().Perm(), err)
			}
		}
		again := func(key string) *keeper {
			t.Setenv("KEEPER_KEY", key)
			return &keeper{services: k.services, dir: k.dir, keys: k.keys, settings: k.settings}
		}
		wantRead(t, again(key), "a", "sesame88")
		wantFault(t, again("another passphrase"), "a", "locked", "")
		wantFault(t, again("AGE-SECRET-KEY-1NONSENSE"), "a", "locked", "no age identity")
		none := again(key)
		none.settings.Store.Key = binding.Source{}
		wantFault(t, none, "a", "locked", "is not known")
	}
}

// TestWire: what the broker asks for, and what it is told. Names that the keeper was
// not started with are nobody's.
func TestWire(t *testing.T) {
	k := testKeeper(t)
	t.Setenv("KEEPER_TEST", "sesame88")
	k.source(t, "a", "env:KEEPER_TEST")
	k.source(t, "other", "env:KEEPER_TEST")
	k.source(t, "bad", []any{"cmd:sh", "-c", "printf 'one\\ntwo\\033[2J' >&2; exit 1"})
	for _, c := range []struct{ ask, want string }{
		{"get a\n", "value 8\nsesame88"},
		{"get a\nget a\n", "value 8\nsesame88value 8\nsesame88"},
		{"get other\n", "error unknown the keeper of this sandbox was not given that name\n"},
		{"get nowhere\n", "error unknown the keeper of this sandbox was not given that name\n"},
		{"get ../a\n", "error unknown the keeper of this sandbox was not given that name\n"},
		{"get bad\n", "error failed secret bad (cmd:sh): sh: exit status 1: one\n"},
		{"put a\n", ""},
		{"get a", ""},
		{"get " + strings.Repeat("a", 10_000) + "\n", ""},
	} {
		here, there := net.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- k.answer(context.Background(), there, []string{"a", "bad"})
			there.Close()
		}()
		go fmt.Fprint(here, c.ask)
		got := make([]byte, len(c.want))
		if len(c.want) > 0 {
			here.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := readFull(here, got); err != nil {
				t.Fatalf("%.40q: %v after %q", c.ask, err, got)
			}
		}
		if string(got) != c.want {
			t.Errorf("%.40q: %q, want %q", c.ask, got, c.want)
		}
		if c.want == "" && strings.HasSuffix(c.ask, "\n") {
			if err := <-ended; err == nil {
				t.Errorf("%.40q: it goes on", c.ask)
			}
			here.Close()
			continue
		}
		here.Close()
		<-ended
	}
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = c.Read(b[n:])
		n += m
	}
	return n, err
}

// TestStoreTwoFirsts: who keeps the first secrets at the same time, under the same
// passphrase, makes one key between them: all can be read afterwards.
func TestStoreTwoFirsts(t *testing.T) {
	k := testKeeper(t)
	t.Setenv("KEEPER_TEST", "a long passphrase")
	names := []string{"one", "two", "three"}
	setter := func() *keeper {
		return &keeper{settings: binding.Settings{Store: binding.Store{Kind: "file", Key: binding.Source{Kind: "env", Words: []string{"KEEPER_TEST"}}}},
			services: k.services, dir: k.dir, keys: k.keys}
	}
	var setting sync.WaitGroup
	for _, name := range names {
		setting.Go(func() {
			if _, err := setter().keep(t.Context(), name, []byte("the value of "+name)); err != nil {
				t.Error(err)
			}
		})
	}
	setting.Wait()
	for _, name := range names {
		wantRead(t, setter(), name, "the value of "+name)
	}
}
