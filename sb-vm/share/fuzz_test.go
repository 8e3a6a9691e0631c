//go:build linux

package share

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// FuzzServe sends any bytes after INIT. Whatever they are, the server does not
// panic, ends when they do, answers in well-formed messages, and touches nothing
// outside the share.
func FuzzServe(f *testing.F) {
	seeds := &raw{t: f}
	add := func(messages ...[]byte) {
		var all []byte
		for _, m := range messages {
			all = append(all, m...)
		}
		f.Add(all)
	}
	m := seeds.message
	lookups := append(m(fusewire.Lookup, 1, body{}.name("dir")), m(fusewire.Lookup, 1, body{}.name("out"))...)
	lookups = append(lookups, m(fusewire.Lookup, 1, body{}.name("file"))...)
	for node := uint64(1); node <= 4; node++ {
		add(lookups, m(fusewire.Lookup, node, body{}.name("..")), m(fusewire.Lookup, node, body{}.name("../secret/file")))
		add(lookups, m(fusewire.Mkdir, node, body{}.u32(0o755, 0).name("x")), m(fusewire.Rmdir, node, body{}.name("x")))
		add(lookups, m(fusewire.Create, node, body{}.u32(unix.O_RDWR, 0o644, 0, 0).name("secret")),
			m(fusewire.Write, 5, append(body{}.u64(1, 0).u32(3, 0).u64(0).u32(0, 0), "abc"...)),
			m(fusewire.Read, 5, body{}.u64(1, 0).u32(100, 0).u64(0).u32(0, 0)),
			m(fusewire.Release, 5, body{}.u64(1).u32(0, 0).u64(0)))
		add(lookups, m(fusewire.Open, node, body{}.u32(unix.O_RDWR, 0)), m(fusewire.Lseek, node, body{}.u64(1, 0).u32(3, 0)),
			m(fusewire.Fallocate, node, body{}.u64(1, 0, 10).u32(0, 0)), m(fusewire.CopyFileRange, node, body{}.u64(1, 0, node, 1, 0, 1, 0)))
		add(lookups, m(fusewire.Rename2, node, body{}.u64(2).u32(0, 0).name("file", "in")), m(fusewire.Rename, node, body{}.u64(3).name("in", "file")))
		add(lookups, m(fusewire.Symlink, node, body{}.name("s", "../secret")), m(fusewire.Link, node, body{}.u64(4).name("l")), m(fusewire.Readlink, node, nil))
		add(lookups, m(fusewire.Setattr, node, body{}.u32(0xfff, 0).u64(0, 0, 0, 0, 0, 0).u32(make([]uint32, 8)...)), m(fusewire.Unlink, node, body{}.name("file")))
		add(lookups, m(fusewire.Readdirplus, node, body{}.u64(0, 0).u32(4096, 0).u64(0).u32(0, 0)), m(fusewire.Forget, node, body{}.u64(9)))
		add(lookups, m(fusewire.Setxattr, node, append(body{}.u32(1, 0).name("user.x"), 'x')), m(fusewire.Listxattr, node, body{}.u32(100, 0)))
		add(lookups, m(fusewire.Interrupt, node, body{}.u64(2)), m(fusewire.Tmpfile, node, body{}.u32(2, 0o600, 0, 0).name("/")), m(fusewire.Statfs, node, nil))
	}
	f.Fuzz(fuzzServe)
}

func fuzzServe(t *testing.T, stream []byte) {
	top := t.TempDir()
	secret := filepath.Join(top, "secret")
	share := filepath.Join(top, "share")
	for _, d := range []string{secret, filepath.Join(share, "dir")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{secret + "/file", share + "/file", share + "/dir/in"} {
		if err := os.WriteFile(f, []byte("canary"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", share+"/out"); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, secret)
	r := newRaw(t, exportSpec{Dir: share, Hidden: []string{"hid*"}, Protected: []string{"dir/in"}}).start()
	go func() {
		r.conn.Write(stream)
		unix.Shutdown(int(r.conn.Fd()), unix.SHUT_WR)
	}()
	// A hang is a failure that says where.
	hang := time.AfterFunc(5*time.Second, func() { debug.SetTraceback("all"); panic("it does not end") })
	for {
		if _, _, _, err := r.receive(); err != nil {
			break
		}
	}
	<-r.ended
	hang.Stop()
	if now := snapshot(t, secret); now != before {
		t.Fatalf("what lies outside was\n%s\nand is\n%s", before, now)
	}
	list, err := os.ReadDir(top)
	if err != nil || len(list) != 2 {
		t.Fatalf("beside the share there is %v, %v", list, err)
	}
	if b, err := os.ReadFile(share + "/dir/in"); err != nil || string(b) != "canary" {
		t.Fatalf("the protected file is %q, %v", b, err)
	}
}
