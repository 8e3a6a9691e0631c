//go:build linux

package share

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

func TestAbsurdSizes(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	file := r.node(1, "file")
	fh, err := r.open(file, unix.O_RDWR)
	must(t, err)
	for what, err := range map[string]error{
		"read 4 GiB":         second(r.ask(fusewire.Read, file, body{}.u64(fh, 0).u32(^uint32(0), 0).u64(0).u32(0, 0))),
		"read at -1":         second(r.ask(fusewire.Read, file, body{}.u64(fh, ^uint64(0)).u32(10, 0).u64(0).u32(0, 0))),
		"write at -1":        second(r.ask(fusewire.Write, file, append(body{}.u64(fh, ^uint64(0)).u32(1, 0).u64(0).u32(0, 0), 'x'))),
		"allocate -1":        second(r.ask(fusewire.Fallocate, file, body{}.u64(fh, 0, ^uint64(0)).u32(0, 0))),
		"allocate oddly":     second(r.ask(fusewire.Fallocate, file, body{}.u64(fh, 0, 1).u32(^uint32(0), 0))),
		"seek strangely":     second(r.ask(fusewire.Lseek, file, body{}.u64(fh, 0).u32(77, 0))),
		"seek to -1":         second(r.ask(fusewire.Lseek, file, body{}.u64(fh, ^uint64(0)).u32(unix.SEEK_DATA, 0))),
		"truncate to -1":     r.setattr(file, fusewire.AttrSize, ^uint64(0), 0),
		"copy with flags":    second(r.ask(fusewire.CopyFileRange, file, body{}.u64(fh, 0, file, fh, 0, 1, 1))),
		"rename with flags":  r.rename(1, "file", 1, "x", 1<<20),
		"rename as whiteout": r.rename(1, "file", 1, "x", unix.RENAME_WHITEOUT),
		"open with accmode3": second(r.open(file, 3)),
	} {
		if err == nil || errors.Is(err, errGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Big but in order: nothing is allocated from a length.
	must(t, second(r.ask(fusewire.Getxattr, file, body{}.u32(0, 0).name("user.x"))), unix.ENODATA)
	must(t, second(r.ask(fusewire.Getxattr, file, body{}.u32(^uint32(0), 0).name("user.x"))), unix.ENODATA)
	must(t, second(r.ask(fusewire.Listxattr, file, body{}.u32(^uint32(0), 0))))
	must(t, second(r.ask(fusewire.Readdir, 1, body{}.u64(0, 0).u32(^uint32(0), 0).u64(0).u32(0, 0))))
	if _, err := r.ask(fusewire.Readdir, 1, body{}.u64(0, 1<<62).u32(4096, 0).u64(0).u32(0, 0)); errors.Is(err, errGone) {
		t.Error("a strange offset ends the share")
	}
	if got, err := r.read(file, fh); err != nil || got != "file" {
		t.Errorf("control: %q, %v", got, err)
	}
}

// Requests that only open or change what must not be opened or changed.
func TestSpecialFilesAreLeftAlone(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	must(t, unix.Mkfifo(filepath.Join(r.dir, "fifo"), 0o666))
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(filepath.Join(r.dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	}
	for _, name := range []string{"fifo", "null"} {
		n, err := r.lookup(1, name)
		must(t, err)
		if n == 0 {
			t.Logf("no %s without root", name)
			continue
		}
		for _, flags := range []uint32{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC} {
			wantErr(t, fmt.Sprint("open ", name), second(r.open(n, flags)), unix.EACCES)
		}
		_, err = r.ask(fusewire.Create, 1, body{}.u32(unix.O_RDWR, 0o644, 0, 0).name(name))
		wantErr(t, "create "+name, err, unix.EEXIST)
		wantErr(t, "truncate "+name, r.setattr(n, fusewire.AttrSize, 0, 0), unix.EINVAL)
	}
	for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK, unix.S_IFDIR, unix.S_IFLNK, 0o170000} {
		_, err := r.ask(fusewire.Mknod, 1, body{}.u32(kind|0o666, 0x103, 0, 0).name("dev"))
		wantErr(t, fmt.Sprintf("mknod %o", kind), err, unix.EPERM)
	}
	must(t, second(r.ask(fusewire.Mknod, 1, body{}.u32(unix.S_IFSOCK|0o666, 0, 0, 0).name("sock"))))
	wantErr(t, "ioctl", second(r.ask(fusewire.Ioctl, 1, body{}.u64(0).u32(0, 0).u64(0).u32(0, 0))), unix.ENOTTY)
	// The directory's own modes are not the file's.
	if fh, err := r.open(1, unix.O_RDONLY); err == nil {
		t.Errorf("a directory was opened as the file %d", fh)
	}
}

func TestUnknownOperations(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	for _, op := range []uint32{0, 7, 19, fusewire.Opendir, fusewire.Flush, 31, 34, 37, 40, 48, 52, 54, 63, 64, 100, 4096, 1 << 31, ^uint32(0)} {
		wantErr(t, fmt.Sprint("opcode ", op), second(r.ask(op, 1, body{}.u64(1, 2, 3))), unix.ENOSYS)
	}
	if n, err := r.lookup(1, "file"); err != nil || n == 0 {
		t.Errorf("control: %d, %v", n, err)
	}
}

// A message that no kernel sends ends the share, with a reason.
func TestMalformed(t *testing.T) {
	header := func(size, op uint32) body { return body{}.u32(size, op).u64(2, 1).u32(0, 0, 0, 0) }
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		started bool
		bytes   body
	}{
		"before INIT":           {false, header(42, fusewire.Lookup).name("f")},
		"header shorter":        {true, header(39, fusewire.Lookup)},
		"length 0":              {true, header(0, fusewire.Lookup)},
		"longer than any":       {true, header(fusewire.MaxMessage+1, fusewire.Write)},
		"4 GiB":                 {true, header(^uint32(0), fusewire.Write)},
		"an extension":          {true, body{}.u32(42, fusewire.Lookup).u64(2, 1).u32(0, 0, 0, 1).name("f")},
		"name without an end":   {true, append(header(41, fusewire.Lookup), 'f')},
		"name and more":         {true, header(44, fusewire.Lookup).name("f", "g")},
		"one name of two":       {true, header(66, fusewire.Rename2).u64(1).u32(0, 0).name("onlythis.")},
		"write says more":       {true, append(header(81, fusewire.Write).u64(1, 0).u32(100, 0).u64(0).u32(0, 0), 'x')},
		"write says less":       {true, append(header(84, fusewire.Write).u64(1, 0).u32(1, 0).u64(0).u32(0, 0), "xxxx"...)},
		"half a struct":         {true, header(44, fusewire.Setattr).u32(0)},
		"too little for a name": {true, header(44, fusewire.Link).u32(0)},
		"batch says more":       {true, header(64, fusewire.BatchForget).u32(1<<30, 0).u64(1, 1)},
		"batch of 4 billion":    {true, header(48, fusewire.BatchForget).u32(^uint32(0), 0)},
		"an Ack of nothing":     {true, header(40, fusewire.Ack)},
		"xattr says more":       {true, header(55, fusewire.Setxattr).u32(1<<20, 0).name("user.x")},
		"the end in a header":   {true, header(40, fusewire.Lookup)[:20]},
		"the end in a message":  {true, append(header(200, fusewire.Lookup), long[:30]...)},
		"an old protocol":       {false, header(56, fusewire.Init).u32(7, 20, 0, initFlags)},
		"another major version": {false, header(104, fusewire.Init).u32(8, 38, 0, initFlags, 0).u32(make([]uint32, 11)...)},
		"half an INIT":          {false, header(44, fusewire.Init).u32(7)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaw(t, exportSpec{})
			if c.started {
				r.start()
			}
			r.conn.Write(c.bytes)
			unix.Shutdown(int(r.conn.Fd()), unix.SHUT_WR)
			err := r.result()
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("Serve returned %v", err)
			}
			t.Log(err)
		})
	}
	t.Run("control", func(t *testing.T) {
		r := newRaw(t, exportSpec{}).start()
		if err := r.end(); err != nil {
			t.Errorf("a stream that ends between messages: %v", err)
		}
	})
}

// A flood of requests whose replies are not read is not kept in memory: the
// server stops reading, and goes on when the guest does.
func TestFlood(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	file := r.node(1, "file")
	fh, err := r.open(file, unix.O_RDWR)
	must(t, err)
	must(t, r.setattr(file, fusewire.AttrSize, fusewire.MaxData, 0))
	read := body{}.u64(fh, 0).u32(fusewire.MaxData, 0).u64(0).u32(0, 0)
	const many = 400
	var sent atomic.Int64
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	go func() {
		for range many {
			r.conn.Write(r.message(fusewire.Read, file, read))
			sent.Add(1)
		}
	}()
	// Until it goes no further: all is sent, or the server has stopped.
	for last := int64(-1); last != sent.Load(); time.Sleep(300 * time.Millisecond) {
		last = sent.Load()
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > maxBuffered*5/4 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	for i := range many {
		if _, _, b, err := r.receive(); err != nil || len(b) != fusewire.MaxData {
			t.Fatalf("reply %d: %d bytes, %v", i, len(b), err)
		}
	}
	must(t, r.end())
}

// Nothing is left when a share ends, whatever was open and under way.
func TestNothingIsLeft(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors()
	for i := range 5 {
		r, _ := outside(t, exportSpec{})
		dir := r.node(1, "dir")
		for range 20 {
			r.open(r.node(dir, "in"), unix.O_RDWR)
			r.list(dir, true)
			r.ask(fusewire.Readdir, 1, body{}.u64(0, 0).u32(40, 0).u64(0).u32(0, 0))
		}
		for range 50 {
			r.send(fusewire.Getattr, dir, body{}.u32(0, 0).u64(0))
		}
		if i == 4 {
			r.conn.Write([]byte("garbage that is long enough for a header, or so"))
		}
		if err := r.end(); (err != nil) != (i == 4) {
			t.Errorf("it ended with %v", err)
		}
	}
	soon(t, "goroutines and descriptors are as before", func() bool {
		return runtime.NumGoroutine() <= goroutines && openDescriptors() <= descriptors
	})
}

// A second INIT is a mount made anew: the old one's numbers mean nothing.
func TestMountedAnew(t *testing.T) {
	r, _ := outside(t, exportSpec{})
	file := r.node(1, "file")
	fh, err := r.open(file, unix.O_RDWR)
	must(t, err)
	r.start()
	wantErr(t, "the old handle", r.write(file, fh, "x"), unix.EBADF)
	wantErr(t, "the old node", second(r.open(file, 0)), unix.ESTALE)
	if got, err := r.readFile("file"); err != nil || got != "file" {
		t.Errorf("anew: %q, %v", got, err)
	}
	must(t, r.end())
}

func (r *raw) readFile(names ...string) (string, error) {
	n := r.node(1, names...)
	fh, err := r.open(n, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	return r.read(n, fh)
}

// The kernel's own file systems end at their mount points.
func TestPseudoFileSystems(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounting takes root")
	}
	r, _ := outside(t, exportSpec{})
	proc, tmp := filepath.Join(r.dir, "dir/sub"), filepath.Join(r.dir, "tmp")
	must(t, os.Mkdir(tmp, 0o755))
	must(t, unix.Mount("proc", proc, "proc", 0, ""))
	defer unix.Unmount(proc, unix.MNT_DETACH)
	must(t, unix.Mount("tmpfs", tmp, "tmpfs", 0, ""))
	defer unix.Unmount(tmp, unix.MNT_DETACH)
	write1(t, filepath.Join(tmp, "f"), "on tmpfs")
	n := r.node(1, "dir", "sub")
	wantErr(t, "look into proc", second(r.lookup(n, "self")), unix.EACCES)
	wantErr(t, "list proc", second(r.list(n, false)), unix.EACCES)
	wantErr(t, "make in proc", r.mkdir(n, "x"), unix.EACCES)
	if got, err := r.readFile("tmp", "f"); err != nil || got != "on tmpfs" {
		t.Errorf("control: %q, %v", got, err)
	}
	e, err := exportSpec{Dir: "/proc"}.open()
	must(t, err)
	if _, err := newExport(e); err == nil {
		t.Error("/proc can be shared")
	}
	if list, err := r.list(1, true); err != nil || !slices.Contains(list, "tmp") {
		t.Errorf("%v, %v", list, err)
	}
}
