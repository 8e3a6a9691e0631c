package template

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCollect(t *testing.T) {
	s := testStore(t)
	file := filepath.Join(t.TempDir(), "kernel")
	os.WriteFile(file, []byte("kernel"), 0o600)
	is, err := Identify(file)
	if err != nil {
		t.Fatal(err)
	}
	with := func(release, value string) []Input {
		return []Input{{Name: Release, Value: release}, {Name: "kernel", Value: value, File: file}}
	}
	kept := publish(t, s, with("0.1.0-dev", is))
	old := publish(t, s, with("0.0.9", is))
	other := publish(t, s, with("0.1.0-dev", is+"x"))
	s.Refuse("k", "because")
	if s.Refused("k") != "because" || s.Refused("j") != "" {
		t.Errorf("refused: %q and %q", s.Refused("k"), s.Refused("j"))
	}
	if got := s.Outdated(with("0.1.0-dev", is+"y")); got != "kernel" {
		t.Errorf("outdated is %q", got)
	}
	if got := s.Outdated(append(with("0.1.0-dev", is), Input{Name: "cpus", Value: "3"})); got != "" {
		t.Errorf("of a machine that is another, %q is outdated", got)
	}
	held, err := s.Lock(context.Background(), []Input{{Name: "held"}})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Discard()
	removed := map[string]bool{}
	freed, err := s.Collect(func(l Listed) { removed[l.Key] = true })
	if err != nil || len(removed) != 2 || !removed[old] || !removed[other] || freed == 0 {
		t.Errorf("removed %v, %d bytes, %v", removed, freed, err)
	}
	all, err := s.List()
	if err != nil || len(all) != 1 || all[0].Key != kept || all[0].Bytes == 0 || all[0].Input("kernel") != is || time.Since(all[0].Used) > time.Hour {
		t.Errorf("left: %+v, %v", all, err)
	}
	if locks := s.named(".", ".lock"); len(locks) != 1 || locks[0] != held.lock.Name() {
		t.Errorf("locks left: %v", locks)
	}
	if _, err := os.Stat(held.dir); err != nil {
		t.Errorf("what is being made is gone: %v", err)
	}
	if s.Refused("k") != "" {
		t.Error("what was refused is not tried again")
	}
	os.Remove(file)
	if s.Collect(func(Listed) {}); len(all) == 1 {
		if all, _ = s.List(); len(all) != 0 {
			t.Errorf("a file is gone, left: %+v", all)
		}
	}
}

// TestBounded: beyond the bound the template goes that was not used for longest.
func TestBounded(t *testing.T) {
	s := testStore(t)
	var keys []string
	for _, name := range []string{"first", "second", "third"} {
		keys = append(keys, publish(t, s, []Input{{Name: name}}))
	}
	all, err := s.List()
	if err != nil || len(all) != 3 {
		t.Fatalf("control: %+v, %v", all, err)
	}
	s.max = 3 * all[0].Bytes
	for i, key := range []string{keys[1], keys[0], keys[2]} { // the second one was used first
		used := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(filepath.Join(s.dir, key, "checked"), used, used); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := s.Find(keys[0]); err != nil { // and the first one now
		t.Fatal(err)
	} else {
		f.Close()
	}
	keys = append(keys, publish(t, s, []Input{{Name: "fourth"}}))
	for i, want := range []bool{true, false, true, true} {
		f, err := s.Find(keys[i])
		if (err == nil) != want {
			t.Errorf("template %d: %v", i, err)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestCopy: a copy has the content and the holes.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	var files [2]*os.File
	for i, name := range []string{"from", "to"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	from, to := files[0], files[1]
	from.Truncate(1 << 30)
	from.WriteAt([]byte("x"), 3<<20+17)
	to.Write(bytes.Repeat([]byte("old"), 1<<20))
	if err := Copy(to, from); err != nil {
		t.Fatal(err)
	}
	a, err1 := Digest(from)
	b, err2 := Digest(to)
	if a != b || err1 != nil || err2 != nil {
		t.Errorf("%s (%v) became %s (%v)", a, err1, b, err2)
	}
	if n := diskUse(dir); n > 1<<20 {
		t.Errorf("they take %d bytes", n)
	}
	to.WriteAt([]byte("y"), 5)
	if c, _ := Digest(to); c == a {
		t.Error("control: another content has the same digest")
	}
}
