//go:build linux

package share

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/lib/fd"
	"sb/sb-vm/share/fusewire"
)

// raw is a guest whose root writes the messages itself: no kernel is in between.
type raw struct {
	t      testing.TB
	dir    string // what is served
	conn   *os.File
	ended  chan error // what Serve returned
	unique uint64
	uid    uint32
}

// body builds the body of a request.
type body []byte

func (b body) u32(v ...uint32) body {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func (b body) u64(v ...uint64) body {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

func (b body) name(names ...string) body {
	for _, n := range names {
		b = append(append(b, n...), 0)
	}
	return b
}

func newRaw(t testing.TB, spec exportSpec) *raw {
	t.Helper()
	if spec.Dir == "" {
		spec.Dir = t.TempDir()
	}
	e, err := spec.open()
	if err != nil {
		t.Fatal(err)
	}
	near, far, err := fd.Pair("share", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{t: t, dir: spec.Dir, conn: near, ended: make(chan error, 1), uid: 1000}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		r.ended <- spec.serve(ctx, far, e)
		e.Root.Close()
	}()
	t.Cleanup(func() {
		near.Close()
		cancel()
	})
	return r
}

const initFlags = 0xffffffff

// start does INIT as a recent kernel does.
func (r *raw) start() *raw {
	r.t.Helper()
	reply, err := r.ask(fusewire.Init, 0, body{}.u32(7, 38, 128<<10, initFlags, 0).u32(make([]uint32, 11)...))
	if err != nil || len(reply) != 64 {
		r.t.Fatalf("INIT: %d bytes, %v", len(reply), err)
	}
	return r
}

func (r *raw) message(op uint32, node uint64, b body) []byte {
	r.unique += 2
	m := body{}.u32(uint32(fusewire.InHeader+len(b)), op).u64(r.unique, node).u32(r.uid, r.uid, 1, 0)
	return append(m, b...)
}

// send writes a message whose reply nobody waits for.
func (r *raw) send(op uint32, node uint64, b body) uint64 {
	if _, err := r.conn.Write(r.message(op, node, b)); err != nil {
		r.t.Logf("write: %v", err)
	}
	return r.unique
}

var errGone = errors.New("the share has ended")

// ask makes a request and returns its reply, passing over notifications.
func (r *raw) ask(op uint32, node uint64, b body) ([]byte, error) {
	unique := r.send(op, node, b)
	for {
		got, errno, reply, err := r.receive()
		if err != nil {
			return nil, errGone
		}
		if got != unique {
			continue
		}
		if errno != 0 {
			return nil, errno
		}
		return reply, nil
	}
}

func (r *raw) receive() (unique uint64, errno unix.Errno, b []byte, err error) {
	r.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	head := make([]byte, fusewire.OutHeader)
	if _, err := io.ReadFull(r.conn, head); err != nil {
		return 0, 0, nil, err
	}
	le := binary.LittleEndian
	b = make([]byte, le.Uint32(head)-fusewire.OutHeader)
	_, err = io.ReadFull(r.conn, b)
	return le.Uint64(head[8:]), unix.Errno(-int32(le.Uint32(head[4:]))), b, err
}

// end closes the guest's side and is what Serve returned.
func (r *raw) end() error {
	r.t.Helper()
	r.conn.Close()
	return r.result()
}

func (r *raw) result() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(20 * time.Second):
		r.t.Fatal("Serve does not return")
		return nil
	}
}

// lookup returns a node's number, 0 if there is none.
func (r *raw) lookup(dir uint64, name string) (uint64, error) {
	reply, err := r.ask(fusewire.Lookup, dir, body{}.name(name))
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(reply), nil
}

// node is lookup of what must be there.
func (r *raw) node(dir uint64, names ...string) uint64 {
	r.t.Helper()
	for _, name := range names {
		n, err := r.lookup(dir, name)
		if err != nil || n == 0 {
			r.t.Fatalf("lookup %q: %d, %v", name, n, err)
		}
		dir = n
	}
	return dir
}

// open returns a handle.
func (r *raw) open(node uint64, flags uint32) (uint64, error) {
	reply, err := r.ask(fusewire.Open, node, body{}.u32(flags, 0))
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(reply), nil
}

func (r *raw) read(node, fh uint64) (string, error) {
	reply, err := r.ask(fusewire.Read, node, body{}.u64(fh, 0).u32(4096, 0).u64(0).u32(0, 0))
	return string(reply), err
}

func (r *raw) write(node, fh uint64, text string) error {
	_, err := r.ask(fusewire.Write, node, append(body{}.u64(fh, 0).u32(uint32(len(text)), 0).u64(0).u32(0, 0), text...))
	return err
}

func (r *raw) mkdir(dir uint64, name string) error {
	_, err := r.ask(fusewire.Mkdir, dir, body{}.u32(0o755, 0o22).name(name))
	return err
}

func (r *raw) create(dir uint64, name string) (node, fh uint64, err error) {
	reply, err := r.ask(fusewire.Create, dir, body{}.u32(unix.O_RDWR, 0o644, 0o22, 0).name(name))
	if err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint64(reply), binary.LittleEndian.Uint64(reply[entrySize:]), nil
}

func (r *raw) rename(dir uint64, name string, newDir uint64, newName string, flags uint32) error {
	_, err := r.ask(fusewire.Rename2, dir, body{}.u64(newDir).u32(flags, 0).name(name, newName))
	return err
}

func (r *raw) symlink(dir uint64, name, target string) error {
	_, err := r.ask(fusewire.Symlink, dir, body{}.name(name, target))
	return err
}

func (r *raw) link(old, dir uint64, name string) error {
	_, err := r.ask(fusewire.Link, dir, body{}.u64(old).name(name))
	return err
}

func (r *raw) unlink(dir uint64, name string) error {
	_, err := r.ask(fusewire.Unlink, dir, body{}.name(name))
	return err
}

func (r *raw) rmdir(dir uint64, name string) error {
	_, err := r.ask(fusewire.Rmdir, dir, body{}.name(name))
	return err
}

func (r *raw) setattr(node uint64, valid uint32, size uint64, mode uint32) error {
	_, err := r.ask(fusewire.Setattr, node, body{}.u32(valid, 0).u64(0, size, 0, 0, 0, 0).u32(0, 0, 0, mode, 0, 0, 0, 0))
	return err
}

func (r *raw) forget(node, count uint64) { r.send(fusewire.Forget, node, body{}.u64(count)) }

// list is the names in a directory.
func (r *raw) list(dir uint64, plus bool) (list []string, err error) {
	op, skip := uint32(fusewire.Readdir), 0
	if plus {
		op, skip = fusewire.Readdirplus, entrySize
	}
	for offset := uint64(0); ; {
		b, err := r.ask(op, dir, body{}.u64(0, offset).u32(4096, 0).u64(0).u32(0, 0))
		if err != nil || len(b) == 0 {
			return list, err
		}
		for len(b) > 0 {
			e := b[skip:]
			n := int(binary.LittleEndian.Uint32(e[16:]))
			if name := string(e[24 : 24+n]); name != "." && name != ".." {
				list = append(list, name)
			}
			offset = binary.LittleEndian.Uint64(e[8:])
			b = e[(24+n+7)&^7:]
		}
	}
}

// snapshot is all that lies beneath dir, with content, mode and times.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	var all bytes.Buffer
	must2 := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var walk func(path string)
	walk = func(path string) {
		st, err := os.Lstat(path)
		must2(err)
		all.WriteString(path + " " + st.Mode().String() + " " + st.ModTime().String())
		switch {
		case st.IsDir():
			list, err := os.ReadDir(path)
			must2(err)
			all.WriteByte('\n')
			for _, e := range list {
				walk(path + "/" + e.Name())
			}
			return
		case st.Mode().IsRegular():
			b, err := os.ReadFile(path)
			must2(err)
			all.Write(b)
		case st.Mode()&os.ModeSymlink != 0:
			l, err := os.Readlink(path)
			must2(err)
			all.WriteString(l)
		}
		all.WriteByte('\n')
	}
	walk(dir)
	return all.String()
}
