package state

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// in is an entry of a guest's archive.
type in struct {
	name, text string
	kind       byte // a file if it is 0
	mode       int64
	at         int // seconds
}

func archive(entries ...in) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: e.mode, ModTime: time.Unix(int64(e.at), 0), Uid: 7, Uname: "root", Format: tar.FormatPAX, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y"}}
		switch e.kind {
		case 0:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = e.text
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if h.Size > 0 {
			io.WriteString(w, e.text)
		}
	}
	w.Close()
	return &b
}

func list(t *testing.T, b io.Reader) (all []string) {
	t.Helper()
	for r := tar.NewReader(b); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		all = append(all, h.Name+"="+string(text)+h.Linkname)
		if h.Uid != 0 || h.Uname != "" || len(h.PAXRecords) > 1 {
			t.Errorf("%+v", h)
		}
	}
}

var claude = Filter{Roots: []string{".claude", ".claude.json"}, Drop: IsCredential}

// TestCopy: what is kept, and what ends it.
func TestCopy(t *testing.T) {
	for _, c := range []struct {
		entries []in
		want    string // the names that are kept, or the error
	}{
		{[]in{{name: ".claude/", kind: tar.TypeDir, mode: 0o700}, {name: ".claude/a b", text: "x"}, {name: ".claude.json", text: "{}"}}, ".claude/= .claude/a b=x .claude.json={}"},
		{[]in{{name: ".claude/a", text: "b", kind: tar.TypeSymlink}, {name: ".claude/d/x", text: "../a", kind: tar.TypeSymlink}}, ".claude/a=b .claude/d/x=../a"},
		{[]in{{name: ".claude/a", text: "/etc/passwd", kind: tar.TypeSymlink}, {name: ".claude/b", text: "../.ssh/x", kind: tar.TypeSymlink}, {name: ".claude/c", text: "../../x", kind: tar.TypeSymlink}}, ""},
		{[]in{{name: ".claude/.credentials.json", text: "s"}, {name: ".claude/x/Auth.json/y", text: "s"}, {name: ".claude/ok"}}, ".claude/ok="},
		{[]in{{name: "../x"}}, `"../x": it lies outside`},
		{[]in{{name: "/etc/passwd"}}, "it lies outside"},
		{[]in{{name: ".claude/../.bashrc"}}, "it lies outside"},
		{[]in{{name: ".claudex"}}, "it lies outside"},
		{[]in{{name: ".bashrc"}}, "it lies outside"},
		{[]in{{name: ".claude//x"}}, "it lies outside"},
		{[]in{{name: ".claude/x", kind: tar.TypeChar}}, "of the kind '3'"},
		{[]in{{name: ".claude/x", kind: tar.TypeFifo}}, "of the kind '6'"},
		{[]in{{name: ".claude/x"}, {name: ".claude/y", text: ".claude/x", kind: tar.TypeLink}}, "of the kind '1'"},
		{[]in{{name: ".claude/x", mode: 0o4755}}, "its mode is 4755"},
		{[]in{{name: ".claude/x"}, {name: ".claude/x"}}, "it is there twice"},
		{[]in{{name: ".claude/x", text: "y", kind: tar.TypeSymlink}, {name: ".claude/x/z"}}, "below what is no directory"},
		{[]in{{name: ".claude/x"}, {name: ".claude/x/y/z"}}, "below what is no directory"},
		{[]in{{name: ".claude/x/y/z"}, {name: ".claude/x"}}, "below what is no directory"},
		{[]in{{name: ".claude/x/y/z"}, {name: ".claude/x", text: "q", kind: tar.TypeSymlink}}, "below what is no directory"},
		{[]in{{name: ".claude/x/y/z"}, {name: ".claude/x/", kind: tar.TypeDir}, {name: ".claude/xy"}}, ".claude/x/y/z= .claude/x/= .claude/xy="},
		{[]in{{name: ".claude/" + strings.Repeat("x", maxName)}}, "no name"},
		{[]in{{name: ".claude/" + strings.Repeat("x", maxPart+1)}}, "no name"},
		{[]in{{name: ".claude/" + strings.Repeat("x", maxPart)}}, ".claude/" + strings.Repeat("x", maxPart) + "="},
		{[]in{{name: ".claude/\xff"}}, "no name"},
	} {
		if c.want == "no name" && strings.Contains(c.entries[0].name, "\xff") {
			continue // tar's writer refuses it; the fuzz target has it
		}
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		_, err := claude.Copy(w, archive(c.entries...))
		w.Close()
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || c.want == "" {
				t.Errorf("%+v: %v, want %q", c.entries, err, c.want)
			}
		} else if got := strings.Join(list(t, &out), " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.entries, got, c.want)
		}
	}
}

// TestBounds: sizes and counts are those that are said, before a byte is taken.
func TestBounds(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: ".claude/x", Size: MaxBytes + 1})
	if _, err := claude.Copy(tar.NewWriter(io.Discard), &b); !errors.Is(err, ErrBounds) {
		t.Errorf("a large file: %v", err)
	}
	r, pipe := io.Pipe()
	go func() {
		w := tar.NewWriter(pipe)
		for i := 0; w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint(".claude/", i)}) == nil; i++ {
		}
	}()
	if _, err := claude.Copy(tar.NewWriter(io.Discard), r); !errors.Is(err, ErrBounds) {
		t.Errorf("many files: %v", err)
	}
	r.Close()
	if _, err := claude.Copy(tar.NewWriter(io.Discard), archive(in{name: ".claude/x"})); err != nil {
		t.Errorf("control: %v", err)
	}
}

// FuzzCopy: whatever a guest sends, what is kept can be read again, is the same, and
// lies below the roots.
func FuzzCopy(f *testing.F) {
	f.Add(archive(in{name: ".claude/a", text: "x"}, in{name: ".claude/l", text: "a", kind: tar.TypeSymlink}).Bytes())
	f.Add([]byte(strings.Repeat("\x00", 1024)))
	f.Fuzz(func(t *testing.T, text []byte) {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		all, err := claude.Copy(w, bytes.NewReader(text))
		if err != nil {
			return
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := claude.Copy(tar.NewWriter(io.Discard), &out)
		if err != nil || len(all) != len(again) {
			t.Fatalf("%v: %d and %d", err, len(all), len(again))
		}
		for name, e := range all {
			if !e.same(again[name]) || !claude.inside(name, name) || e.mode&^0o777 != 0 {
				t.Fatalf("%q: %+v, %+v", name, e, again[name])
			}
		}
	})
}

// kept runs a sandbox on a store that begins at once and ends with these files.
func (s Store) begin(t *testing.T, seeds ...Seed) *Base {
	t.Helper()
	b, err := s.Begin(claude, "/work", func(first, here bool) ([]Seed, error) {
		if !first {
			return nil, nil
		}
		return seeds, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func (s Store) keep(t *testing.T, base *Base, entries ...in) []string {
	t.Helper()
	both, err := s.Keep(claude, base, func(w io.Writer) error {
		_, err := w.Write(archive(entries...).Bytes())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return both
}

func (b *Base) list(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := b.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	all := list(t, &out)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestStore: the state begins with the seeds, once; what is kept is what the next
// begins with; one that fails or is killed leaves what was; a reset begins anew.
func TestStore(t *testing.T) {
	s := Store{t.TempDir()}
	seed := Seed{Name: ".claude/settings.json", Mode: 0o600, Text: []byte("seed")}
	if got := s.begin(t, seed, Seed{Name: ".claude/.credentials.json", Text: []byte("s")}).list(t); got != ".claude/settings.json=seed" {
		t.Errorf("at first %q", got)
	}
	first := s.begin(t, seed)
	s.keep(t, first, in{name: ".claude/a", text: "1"})
	if got := s.begin(t, seed).list(t); got != ".claude/a=1" {
		t.Errorf("then %q", got)
	}
	for _, read := range []func(io.Writer) error{
		func(w io.Writer) error { return errors.New("the guest is gone") },
		func(w io.Writer) error {
			w.Write(archive(in{name: ".claude/b", text: "2"}).Bytes()[:700])
			return io.ErrUnexpectedEOF
		},
		func(w io.Writer) error { _, err := w.Write(archive(in{name: "/etc/x"}).Bytes()); return err },
	} {
		if _, err := s.Keep(claude, s.begin(t), read); err == nil {
			t.Error("it was kept")
		}
		if got := s.begin(t).list(t); got != ".claude/a=1" {
			t.Errorf("after a failure %q", got)
		}
	}
	// What a killed writer left goes; what one writes that lives stays.
	for name, age := range map[string]time.Duration{"new-dead": time.Hour, "new-alive": 0} {
		if err := os.WriteFile(s.file(name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(s.file(name), time.Time{}, time.Now().Add(-age))
	}
	running := s.begin(t)
	if left, _ := filepath.Glob(s.file("new-*")); len(left) != 1 || filepath.Base(left[0]) != "new-alive" {
		t.Errorf("left: %q", left)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Keep(claude, running, func(w io.Writer) error {
		_, err := w.Write(archive(in{name: ".claude/b", text: "2"}).Bytes())
		return err
	}); !errors.Is(err, ErrReset) {
		t.Errorf("reset meanwhile: %v", err)
	}
	if got := s.begin(t, seed).list(t); got != ".claude/settings.json=seed" {
		t.Errorf("after a reset %q", got)
	}
}

// TestSeedInTheWay: what a guest left where the files of another directory's seeds would
// lie stays, and the state can be read: else it would be lost for every directory.
func TestSeedInTheWay(t *testing.T) {
	for _, c := range []struct {
		left []in
		want string
	}{
		{[]in{{name: ".claude/projects"}}, ".claude/free/b=2 .claude/projects="},
		{[]in{{name: ".claude/projects", text: "x", kind: tar.TypeSymlink}}, ".claude/free/b=2 .claude/projects=x"},
		{[]in{{name: ".claude/projects/there"}}, ".claude/free/b=2 .claude/projects/there="},
		{[]in{{name: ".claude/projects/there/1.jsonl/x"}}, ".claude/free/b=2 .claude/projects/there/1.jsonl/x="},
		{[]in{{name: ".claude/projects/here"}}, ".claude/free/b=2 .claude/projects/here= .claude/projects/there/1.jsonl=1"},
	} {
		s := Store{t.TempDir()}
		s.keep(t, s.begin(t), c.left...)
		_, err := s.Begin(claude, "/there", func(first, here bool) ([]Seed, error) {
			return []Seed{{Name: ".claude/projects/there/1.jsonl", Text: []byte("1")}, {Name: ".claude/free/b", Text: []byte("2")}}, nil
		})
		if err != nil {
			t.Errorf("%+v: %v", c.left, err)
		} else if got := s.begin(t).list(t); got != c.want {
			t.Errorf("%+v: it has %q, want %q", c.left, got, c.want)
		}
	}
}

// TestTwo: two that began with the same and end one after the other. What one of them
// changed is there, and of what both did the newest, databases whole.
func TestTwo(t *testing.T) {
	s := Store{t.TempDir()}
	began := []in{{name: ".claude/same", text: "0"}, {name: ".claude/a", text: "0"}, {name: ".claude/b", text: "0"}, {name: ".claude/gone", text: "0"}, {name: ".claude/both", text: "0"}, {name: ".claude/x.db", text: "0"}, {name: ".claude/x.db-wal", text: "0"}}
	s.keep(t, s.begin(t), began...)
	one, two := s.begin(t), s.begin(t)
	change := func(changes ...in) (all []in) {
		by := map[string]in{}
		for _, e := range append(slices.Clone(began), changes...) {
			by[e.name] = e
		}
		for _, name := range slices.Sorted(maps.Keys(by)) {
			if e := by[name]; e.text != "" {
				all = append(all, e)
			}
		}
		return all
	}
	if both := s.keep(t, one, change(in{name: ".claude/a", text: "1"}, in{name: ".claude/gone"}, in{name: ".claude/both", text: "1", at: 100}, in{name: ".claude/x.db", text: "1", at: 100}, in{name: ".claude/x.db-wal", text: "1", at: 300})...); len(both) != 0 {
		t.Errorf("alone: %q", both)
	}
	both := s.keep(t, two, change(in{name: ".claude/b", text: "2"}, in{name: ".claude/new", text: "2"}, in{name: ".claude/both", text: "2", at: 200}, in{name: ".claude/x.db", text: "2", at: 200}, in{name: ".claude/x.db-wal"})...)
	if got := strings.Join(both, " "); got != ".claude/both .claude/x.db" {
		t.Errorf("both changed %q", got)
	}
	want := ".claude/a=1 .claude/b=2 .claude/both=2 .claude/new=2 .claude/same=0 .claude/x.db-wal=1 .claude/x.db=1"
	if got := s.begin(t).list(t); got != want {
		t.Errorf("together %q, want %q", got, want)
	}
}
