//go:build linux

package share

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// outside makes a share in a directory beside which a canary lies, and checks at
// the end that the guest did not touch what is outside the share.
func outside(t *testing.T, spec exportSpec) (r *raw, canary string) {
	t.Helper()
	top := t.TempDir()
	canary = filepath.Join(top, "secret")
	must(t, os.MkdirAll(filepath.Join(canary, "dir"), 0o755))
	write1(t, filepath.Join(canary, "file"), "canary")
	spec.Dir = filepath.Join(top, "share")
	must(t, os.MkdirAll(filepath.Join(spec.Dir, "dir/sub"), 0o755))
	write1(t, filepath.Join(spec.Dir, "file"), "file")
	write1(t, filepath.Join(spec.Dir, "dir/in"), "in")
	must(t, os.Symlink("../secret", filepath.Join(spec.Dir, "out")))
	must(t, os.Symlink(canary, filepath.Join(spec.Dir, "abs")))
	must(t, os.Symlink("../secret/file", filepath.Join(spec.Dir, "outfile")))
	must(t, os.Symlink("dir", filepath.Join(spec.Dir, "within")))
	before := snapshot(t, canary)
	r = newRaw(t, spec).start()
	t.Cleanup(func() {
		if now := snapshot(t, canary); now != before {
			t.Errorf("what lies outside was\n%s\nand is\n%s", before, now)
		}
	})
	return r, canary
}

var badNames = []string{"", ".", "..", "/", "a/b", "../secret", "../secret/file", "dir/in", "/etc/passwd", "..\\", strings.Repeat("n", 256), strings.Repeat("n", 5000)}

// wellNamed are the ones of badNames that are merely odd.
var wellNamed = map[string]bool{"..\\": true}

func TestNamesThatEscape(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	file := r.node(1, "file")
	for _, name := range badNames {
		if wellNamed[name] {
			continue
		}
		for what, err := range map[string]error{
			"lookup":      second(r.lookup(1, name)),
			"mkdir":       r.mkdir(1, name),
			"create":      third(r.create(1, name)),
			"symlink":     r.symlink(1, name, "x"),
			"link":        r.link(file, 1, name),
			"unlink":      r.unlink(1, name),
			"rmdir":       r.rmdir(1, name),
			"rename from": r.rename(1, name, 1, "free", 0),
			"rename to":   r.rename(1, "file", 1, name, 0),
			"exchange":    r.rename(1, "file", 1, name, unix.RENAME_EXCHANGE),
			"mknod":       second(r.ask(fusewire.Mknod, 1, body{}.u32(unix.S_IFREG|0o644, 0, 0, 0).name(name))),
		} {
			want := error(unix.EINVAL)
			if len(name) > 255 {
				want = unix.ENAMETOOLONG
			}
			wantErr(t, fmt.Sprintf("%s %.20q", what, name), err, want)
		}
	}
	// Control: the same requests with names that are names.
	must(t, r.mkdir(1, "good"))
	_, _, err := r.create(1, "..\\")
	must(t, err)
	must(t, r.symlink(1, "...", "../secret"))
	must(t, r.link(file, 1, strings.Repeat("n", 255)))
	must(t, r.rename(1, "file", 1, "moved", 0))
	must(t, r.unlink(1, "moved"))
	must(t, r.rmdir(1, "good"))
	must(t, r.end())
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

// A symbolic link is never a directory to the host, wherever it points.
func TestParentsThatAreNoDirectories(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	file := r.node(1, "file")
	for _, parent := range []string{"out", "abs", "within", "outfile", "file"} {
		p := r.node(1, parent)
		for what, err := range map[string]error{
			"lookup":    second(r.lookup(p, "file")),
			"mkdir":     r.mkdir(p, "x"),
			"create":    third(r.create(p, "x")),
			"symlink":   r.symlink(p, "x", "y"),
			"link":      r.link(file, p, "x"),
			"unlink":    r.unlink(p, "file"),
			"rename in": r.rename(1, "file", p, "x", 0),
			"list":      second(r.list(p, true)),
			"tmpfile":   second(r.ask(fusewire.Tmpfile, p, body{}.u32(unix.O_RDWR, 0o600, 0, 0).name("/"))),
		} {
			wantErr(t, what+" in "+parent, err, unix.ENOTDIR)
		}
		if parent == "file" {
			continue
		}
		if _, err := r.open(p, unix.O_RDWR); err == nil {
			t.Errorf("the link %s can be opened", parent)
		}
		if err := r.setattr(p, fusewire.AttrSize, 0, 0); err == nil {
			t.Errorf("through the link %s a file can be truncated", parent)
		}
		if err := r.setattr(p, fusewire.AttrMode, 0, 0o777); err == nil {
			t.Errorf("through the link %s a mode can be changed", parent)
		}
		if _, err := r.ask(fusewire.Setxattr, p, append(body{}.u32(1, 0).name("user.x"), 'x')); err == nil {
			t.Errorf("through the link %s an attribute can be set", parent)
		}
	}
	dir := r.node(1, "dir")
	must(t, r.mkdir(dir, "control"))
	if n, err := r.lookup(dir, "in"); err != nil || n == 0 {
		t.Errorf("control: %d, %v", n, err)
	}
}

// A directory that the guest holds becomes a link out of the share.
func TestDirectoryReplacedByLink(t *testing.T) {
	r, canary := outside(t, exportSpec{})
	dir := r.node(1, "dir")
	must(t, r.mkdir(dir, "control"))
	must(t, os.Rename(filepath.Join(r.dir, "dir"), filepath.Join(r.dir, "away")))
	must(t, os.Symlink(canary, filepath.Join(r.dir, "dir")))
	deadline := time.Now().Add(5 * time.Second)
	for i := 0; ; i++ {
		// In the moment after the move the directory itself may still be open:
		// what is made there is made in the share. Then it is gone.
		err := r.mkdir(dir, fmt.Sprint("made", i))
		if errors.Is(err, unix.ESTALE) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the directory that was moved is still served: %v", err)
		}
	}
	if n, err := r.lookup(1, "away"); err != nil || n != dir {
		t.Errorf("under its new name it is %d, %v, want %d", n, err, dir)
	}
	must(t, r.mkdir(dir, "again"))
}

// A directory that the host moves out of the share is out of reach, though the
// guest works in it all the time and a link to it stands in its place.
func TestDirectoryMovedOut(t *testing.T) {
	for _, watches := range []int{0, -1} {
		for _, link := range []bool{false, true} {
			t.Run(fmt.Sprintf("watches%d link%v", watches, link), func(t *testing.T) {
				r, canary := outside(t, exportSpec{Watches: watches})
				dir := r.node(1, "dir")
				sub := r.node(dir, "sub")
				must(t, r.mkdir(sub, "control"))
				out := filepath.Join(filepath.Dir(canary), "moved")
				must(t, os.Rename(r.dir+"/dir", out))
				if link {
					must(t, os.Symlink(out, r.dir+"/dir"))
				}
				left := time.Now().Add(trust)
				for i := 0; time.Now().Before(left); i++ {
					r.mkdir(sub, fmt.Sprint("soon", i%20))
					r.rmdir(sub, fmt.Sprint("soon", i%20))
				}
				for what, err := range map[string]error{
					"make":   r.mkdir(sub, "late"),
					"look":   second(r.lookup(sub, "control")),
					"list":   second(r.list(dir, true)),
					"remove": r.rmdir(sub, "control"),
					"chmod":  r.setattr(sub, fusewire.AttrMode, 0, 0o777),
				} {
					wantErr(t, what, err, unix.ESTALE)
				}
			})
		}
	}
}

// The guest swaps a directory for a link out of the share while it works in it.
func TestSwapRace(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	dir := r.node(1, "dir")
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, r.dir+"/dir", unix.AT_FDCWD, r.dir+"/out", unix.RENAME_EXCHANGE)
				runtime.Gosched()
			}
		}
	}()
	worked, failed := 0, 0
	for i := range 3000 {
		r.lookup(1, "dir")
		if err := r.mkdir(dir, fmt.Sprint("x", i)); err == nil {
			worked++
		} else {
			failed++
		}
		r.unlink(dir, "file")
		if n, err := r.lookup(dir, "in"); err == nil && n != 0 {
			r.setattr(n, fusewire.AttrMode, 0, 0o600)
			if fh, err := r.open(n, unix.O_RDWR); err == nil {
				r.write(n, fh, "in")
				r.ask(fusewire.Release, n, body{}.u64(fh).u32(0, 0).u64(0))
			}
		}
	}
	close(stop)
	<-done
	if worked == 0 {
		t.Error("nothing worked: the race was not run")
	}
	t.Logf("%d times made, %d times not", worked, failed)
}

func TestNumbersThatLie(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	file, dir := r.node(1, "file"), r.node(1, "dir")
	fh, err := r.open(file, unix.O_RDWR)
	must(t, err)
	rofh, err := r.open(file, unix.O_RDONLY)
	must(t, err)
	for _, n := range []uint64{0, 99, file + 1000, 1 << 63, ^uint64(0)} {
		wantErr(t, fmt.Sprint("lookup in node ", n), second(r.lookup(n, "x")), unix.ESTALE)
		wantErr(t, fmt.Sprint("open node ", n), second(r.open(n, 0)), unix.ESTALE)
		wantErr(t, fmt.Sprint("link node ", n), r.link(n, 1, "x"), unix.ESTALE)
		wantErr(t, fmt.Sprint("rename into node ", n), r.rename(1, "file", n, "x", 0), unix.ESTALE)
		wantErr(t, fmt.Sprint("read handle ", n), second(r.read(file, n)), unix.EBADF)
		wantErr(t, fmt.Sprint("write handle ", n), r.write(file, n, "x"), unix.EBADF)
	}
	wantErr(t, "another node's handle", r.write(dir, fh, "x"), unix.EBADF)
	wantErr(t, "writing by a handle for reading", r.write(file, rofh, "x"), unix.EBADF)
	wantErr(t, "allocating by a handle for reading", second(r.ask(fusewire.Fallocate, file, body{}.u64(rofh, 0, 100).u32(0, 0))), unix.EBADF)
	wantErr(t, "copying to a handle for reading", second(r.ask(fusewire.CopyFileRange, file, body{}.u64(fh, 0, file, rofh, 0, 1, 0))), unix.EBADF)
	_, err = r.ask(fusewire.Setattr, file, body{}.u32(fusewire.AttrSize|fusewire.AttrFH, 0).u64(rofh, 0, 0, 0, 0, 0).u32(make([]uint32, 8)...))
	wantErr(t, "truncating by a handle for reading", err, unix.EBADF)
	must(t, r.write(file, fh, "good"))
	if got, err := r.read(file, rofh); err != nil || got != "good" {
		t.Errorf("control: %q, %v", got, err)
	}
	// Given back twice; and used after that.
	must(t, second(r.ask(fusewire.Release, file, body{}.u64(fh).u32(0, 0).u64(0))))
	wantErr(t, "released again", second(r.ask(fusewire.Release, file, body{}.u64(fh).u32(0, 0).u64(0))), unix.EBADF)
	wantErr(t, "written after release", r.write(file, fh, "x"), unix.EBADF)
}

func TestForgetting(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	dir := r.node(1, "dir")
	in := r.node(dir, "in")
	r.forget(in, 1<<63) // more than it was given
	r.forget(in, ^uint64(0))
	r.forget(1, 1000) // the root stays
	r.forget(777, 1)
	r.send(fusewire.BatchForget, 0, body{}.u32(3, 0).u64(dir, 5, in, 5, 1, ^uint64(0)))
	wantErr(t, "open what was forgotten", second(r.open(in, 0)), unix.ESTALE)
	wantErr(t, "look into what was forgotten", second(r.lookup(dir, "in")), unix.ESTALE)
	again := r.node(1, "dir", "in")
	if again == in {
		t.Error("a number was given twice")
	}
	// Parents before children, with a handle open.
	dir = r.node(1, "dir")
	in = r.node(dir, "in")
	fh, err := r.open(in, unix.O_RDONLY)
	must(t, err)
	r.forget(dir, 1<<40)
	r.forget(in, 1<<40)
	if got, err := r.read(in, fh); err != nil || got != "in" {
		t.Errorf("the open file: %q, %v", got, err)
	}
	must(t, second(r.ask(fusewire.Release, in, body{}.u64(fh).u32(0, 0).u64(0))))
	wantErr(t, "closed and forgotten", second(r.open(in, 0)), unix.ESTALE)
	must(t, r.end())
}
