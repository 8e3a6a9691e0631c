//go:build linux

package share

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestModel does the same random operations on a share and on a plain directory:
// every result and in the end every file must be the same.
func TestModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			spec := exportSpec{Watches: -int(seed % 2)}
			if seed%4 > 1 {
				spec.UID = ordinary
			}
			m := mount(t, spec)
			share := &side{dir: m.guest}
			plain := &side{dir: t.TempDir()}
			rnd := rand.New(rand.NewPCG(seed, 7))
			for i := range 4000 {
				op := randomOp(rnd)
				got, want := op.do(share), op.do(plain)
				if got != want {
					t.Fatalf("step %d, %+v: the share says %q, the plain directory %q", i, op, got, want)
				}
			}
			for _, s := range []*side{share, plain} {
				for _, f := range s.open {
					f.Close()
				}
			}
			want := contents(t, plain.dir)
			if got := contents(t, m.guest); got != want {
				t.Errorf("the guest sees\n%s\nwant\n%s", got, want)
			}
			if got := contents(t, m.host); got != want {
				t.Errorf("the host has\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// side is one of the two directories with its open files.
type side struct {
	dir  string
	open [4]*os.File
}

type modelOp struct {
	kind, a, b string
	slot       int
	n          int64
}

var opKinds = []string{
	"open", "open", "create", "excl", "append", "trunc", "pwrite", "pwrite", "pread", "fstat", "ftruncate", "close", "falloc",
	"punch", "copyrange", "mkdir", "mkdir", "rmdir", "unlink", "rename", "rename", "noreplace", "exchange", "link",
	"symlink", "readlink", "stat", "lstat", "list", "chmod", "truncate", "readfile", "removeall",
}

func randomOp(rnd *rand.Rand) modelOp {
	name := func() string {
		p := string(rune('a' + rnd.IntN(4)))
		for rnd.IntN(2) == 0 && len(p) < 8 {
			p += "/" + string(rune('a'+rnd.IntN(4)))
		}
		return p
	}
	return modelOp{opKinds[rnd.IntN(len(opKinds))], name(), name(), rnd.IntN(4), rnd.Int64N(20000)}
}

// do runs the operation and says what came of it.
func (op modelOp) do(s *side) string {
	a, b := filepath.Join(s.dir, op.a), filepath.Join(s.dir, op.b)
	text, err := "", error(nil)
	switch op.kind {
	case "open", "create", "excl", "append", "trunc":
		err = op.openFile(s, a)
	case "mkdir":
		err = os.Mkdir(a, 0o755)
	case "rmdir":
		err = unix.Rmdir(a)
	case "unlink":
		err = unix.Unlink(a)
	case "rename":
		err = unix.Rename(a, b)
	case "noreplace":
		err = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_NOREPLACE)
	case "exchange":
		err = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	case "link":
		err = unix.Link(a, b)
	case "symlink":
		err = unix.Symlink(filepath.Base(op.b), a)
	case "readlink":
		text, err = os.Readlink(a)
	case "stat", "lstat":
		text, err = statText(a, op.kind == "stat")
	case "list":
		text, err = listText(a)
	case "chmod":
		// A directory that its owner may not search is closed to the guest's root as
		// well, if the server is not root's.
		err = unix.Chmod(a, uint32(op.n)&0o777|0o300)
	case "truncate":
		err = unix.Truncate(a, op.n)
	case "readfile":
		var c []byte
		c, err = os.ReadFile(a)
		text = string(c)
	case "removeall":
		if op.n%10 == 0 {
			err = os.RemoveAll(a)
		}
	default:
		if s.open[op.slot] == nil {
			return "nothing is open"
		}
		text, err = op.onFile(s)
	}
	return result(text, err)
}

// result names an error by its number: paths differ.
func result(text string, err error) string {
	var n unix.Errno
	if errors.As(err, &n) {
		return n.Error()
	}
	if err != nil && err != io.EOF {
		return err.Error()
	}
	return text
}

func (op modelOp) openFile(s *side, path string) error {
	flags := map[string]int{
		"open": os.O_RDWR, "create": os.O_RDWR | os.O_CREATE, "excl": os.O_RDWR | os.O_CREATE | os.O_EXCL,
		"append": os.O_RDWR | os.O_CREATE | unix.O_APPEND, "trunc": os.O_RDWR | os.O_CREATE | os.O_TRUNC,
	}[op.kind]
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	if f := s.open[op.slot]; f != nil {
		f.Close()
	}
	s.open[op.slot] = os.NewFile(uintptr(fd), "file")
	return nil
}

func (op modelOp) onFile(s *side) (string, error) {
	f := s.open[op.slot]
	fd := int(f.Fd())
	switch op.kind {
	case "pwrite":
		n, err := unix.Pwrite(fd, []byte(strings.Repeat(op.a, int(op.n)%3000)), op.n)
		return fmt.Sprint(n), err
	case "pread":
		b := make([]byte, 5000)
		n, err := unix.Pread(fd, b, op.n/2)
		return string(b[:max(n, 0)]), err
	case "fstat":
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		return fmt.Sprint(st.Size, st.Nlink, st.Mode), err
	case "ftruncate":
		return "", f.Truncate(op.n)
	case "falloc":
		return "", unix.Fallocate(fd, uint32(op.n)&unix.FALLOC_FL_KEEP_SIZE, op.n, op.n/2+1)
	case "punch":
		return "", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, op.n/2, op.n+1)
	case "copyrange":
		to := s.open[(op.slot+1)%4]
		if to == nil {
			return "", nil
		}
		from, at := op.n/3, op.n/2
		_, err := unix.CopyFileRange(fd, &from, int(to.Fd()), &at, 1000, 0)
		return "", err
	case "close":
		s.open[op.slot] = nil
		return "", f.Close()
	}
	return "", errors.New("no such operation: " + op.kind)
}

func statText(path string, follow bool) (string, error) {
	var st unix.Stat_t
	call := unix.Lstat
	if follow {
		call = unix.Stat
	}
	err := call(path, &st)
	size := st.Size
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		size = 0
	}
	return fmt.Sprint(st.Mode, st.Nlink, size), err
}

func listText(path string) (string, error) {
	list, err := os.ReadDir(path)
	text := ""
	for _, e := range list {
		text += e.Name() + " " + e.Type().String() + "\n"
	}
	return text, err
}

// contents is snapshot without what must differ: names of the top and times.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text, err := statText(path, false)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintln(&all, rel, text)
		if e.Type().IsRegular() {
			b, err := os.ReadFile(path)
			fmt.Fprintf(&all, "%q %v\n", b, err)
		}
		if e.Type()&os.ModeSymlink != 0 {
			l, err := os.Readlink(path)
			fmt.Fprintln(&all, l, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
