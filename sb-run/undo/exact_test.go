package undo

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRestoreIsExact: of a random tree with random changes, restoring all gives
// back every byte, permission, time, link and attribute.
func TestRestoreIsExact(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(25) {
		g := &gardener{t: t, rand: rand.New(rand.NewPCG(seed, i))}
		s, tree := stage(t)
		g.tree, g.outside = tree, t.TempDir()
		write(t, g.outside+"/kept", "not of the tree")
		outside := look(t, g.outside)
		g.grow(60)
		g.settle()
		before := look(t, tree)
		r := record(t, s, tree)
		if now := look(t, tree); now != before {
			t.Fatalf("seed %d/%d: recording changed the tree", seed, i)
		}
		g.wreck(40)
		wrecked := look(t, tree)
		now := record(t, s, tree)
		if left, err := s.Restore(t.Context(), MakePlan(r, now, nil, true)); len(left) > 0 || err != nil {
			t.Fatalf("seed %d/%d: left: %v, %v", seed, i, left, err)
		}
		if after := look(t, tree); after != before {
			t.Fatalf("seed %d/%d: restored\n%s\nwant\n%s\nit was\n%s", seed, i, after, before, wrecked)
		}
		// And back to what it was before that.
		if left := restore(t, s, now, true); len(left) > 0 {
			t.Fatalf("seed %d/%d: back: left: %v", seed, i, left)
		}
		if after := look(t, tree); after != wrecked {
			t.Fatalf("seed %d/%d: back to\n%s\nwant\n%s", seed, i, after, wrecked)
		}
		if after := look(t, g.outside); after != outside {
			t.Fatalf("seed %d/%d: where a link leads is now\n%s\nwant\n%s", seed, i, after, outside)
		}
		if changes, _ := Diff(now, record(t, s, tree)); len(changes) > 0 {
			t.Fatalf("seed %d/%d: what is equal differs: %v", seed, i, changes)
		}
	}
}

// gardener makes and changes random trees.
type gardener struct {
	t    *testing.T
	rand *rand.Rand
	tree string

	outside string // a directory that links of the tree lead to
}

func (g *gardener) name() string {
	names := []string{"a", "b", "c", "a b", "é", "\xff\xfe", "new\nline", "-", ".git", `"`, "a.txt", "~"}
	return names[g.rand.IntN(len(names))]
}

// paths are those of the tree, the tree itself first.
func (g *gardener) paths(kind fs.FileMode) (all []string) {
	filepath.WalkDir(g.tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == kind {
			all = append(all, path)
		}
		return nil
	})
	return all
}

func (g *gardener) pick(kind fs.FileMode) string {
	all := g.paths(kind)
	if len(all) == 0 {
		return g.tree
	}
	return all[g.rand.IntN(len(all))]
}

func (g *gardener) text() []byte {
	b := make([]byte, []int{0, 1, 10, 5000, small + 10}[g.rand.IntN(100)/24])
	for i := range min(len(b), 100) {
		b[i] = byte(g.rand.Uint32())
	}
	return b
}

func (g *gardener) grow(n int) {
	for range n {
		path := filepath.Join(g.pick(fs.ModeDir), g.name())
		switch g.rand.IntN(6) {
		case 0, 1:
			os.Mkdir(path, 0o755)
		case 2, 3:
			os.WriteFile(path, g.text(), fs.FileMode(0o400|g.rand.IntN(0o400)))
		case 4:
			os.Symlink("to "+g.name(), path)
		case 5:
			if from := g.pick(0); from != g.tree {
				os.Link(from, path)
			}
		}
	}
}

// settle gives files times and attributes that are none of now.
func (g *gardener) settle() {
	for _, path := range g.paths(0) {
		when := time.Unix(1e9+int64(g.rand.IntN(1e6)), int64(g.rand.IntN(1e9)))
		os.Chtimes(path, when, when)
		if g.rand.IntN(4) == 0 {
			unix.Setxattr(path, "user.x", []byte{0, 255, byte(g.rand.Uint32())}, 0)
		}
	}
	for _, path := range g.paths(fs.ModeDir) {
		os.Chmod(path, fs.FileMode(0o700|g.rand.IntN(0o100)))
		when := time.Unix(1e9, int64(g.rand.IntN(1e9)))
		os.Chtimes(path, when, when)
	}
}

func (g *gardener) wreck(n int) {
	for range n {
		path := g.pick([]fs.FileMode{0, fs.ModeDir, fs.ModeSymlink}[g.rand.IntN(3)])
		if path == g.tree {
			continue
		}
		switch g.rand.IntN(7) {
		case 0:
			os.RemoveAll(path)
		case 1:
			os.Rename(path, filepath.Join(g.pick(fs.ModeDir), g.name()))
		case 2: // not of a link, which would be that of where it leads
			if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSymlink {
				os.Chmod(path, fs.FileMode(0o700|g.rand.IntN(0o100)))
			}
		case 3:
			os.RemoveAll(path)
			os.Symlink(g.outside, path)
		case 4:
			os.RemoveAll(path)
			write(g.t, path+"/"+g.name()+"/x", "new")
		case 5: // in place, for all names of the file
			if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
				f.Write(g.text())
				f.Close()
			}
		default:
			g.grow(2)
		}
	}
}
