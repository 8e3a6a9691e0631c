package main

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/template"
	"sb/sb-vm/machine"
)

// testQEMU is a machine whose files are there.
func testQEMU(t *testing.T) *qemu {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return &qemu{parts: &parts{kernel: file("vmlinux"), initramfs: file("initramfs")}, program: file("qemu"), arch: "amd64", accel: "tcg",
		m: &manifest.Manifest{Name: "one", Network: manifest.Network{MTU: 1500}, Machine: manifest.Machine{
			CPUs: 2, Memory: 512 << 20, Base: file("base"), Disk: newDisk(t, filepath.Join(dir, "disk"), 0)}}}
}

// newDisk is a file that begins as ext4 does; mounted is when it was, last.
func newDisk(t *testing.T, path string, mounted uint32) string {
	t.Helper()
	b := make([]byte, 8192)
	binary.LittleEndian.PutUint32(b[1024+0x2c:], mounted)
	binary.LittleEndian.PutUint16(b[1024+0x38:], 0xef53)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func keyOf(t *testing.T, q *qemu) string {
	t.Helper()
	in, err := q.inputs()
	if err != nil {
		t.Fatal(err)
	}
	return template.Key(in)
}

// TestInputs: each thing that makes a machine another is part of its key, and
// nothing of a sandbox's is.
func TestInputs(t *testing.T) {
	replace := func(path *string) func(*testing.T) {
		return func(t *testing.T) {
			other := *path + ".new"
			b, err := os.ReadFile(*path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(other, b, 0o600), os.Rename(other, *path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	touch := func(path *string) func(*testing.T) {
		return func(t *testing.T) {
			if err := os.Chtimes(*path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, change := range map[string]func(q *qemu) func(*testing.T){
		"QEMU that was installed anew": func(q *qemu) func(*testing.T) { return replace(&q.program) },
		"QEMU of another path":         func(q *qemu) func(*testing.T) { return func(*testing.T) { q.program = q.kernel } },
		"a kernel that was changed":    func(q *qemu) func(*testing.T) { return touch(&q.kernel) },
		"another guest program":        func(q *qemu) func(*testing.T) { return replace(&q.initramfs) },
		"another image":                func(q *qemu) func(*testing.T) { return replace(&q.m.Machine.Base) },
		"another processor":            func(q *qemu) func(*testing.T) { return func(*testing.T) { q.accel = "kvm" } },
		"another machine type":         func(q *qemu) func(*testing.T) { return func(*testing.T) { q.arch = "arm64" } },
		"more processors":              func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Machine.CPUs++ } },
		"more memory":                  func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Machine.Memory += 1 << 20 } },
		"larger frames":                func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Network.MTU++ } },
		"more shares than ports":       func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Shares = make([]manifest.Share, 5) } },
		"a larger disk":                func(q *qemu) func(*testing.T) { return func(*testing.T) { os.Truncate(q.m.Machine.Disk, 1<<20) } },
		"a disk with something else": func(q *qemu) func(*testing.T) {
			return func(*testing.T) {
				os.WriteFile(q.m.Machine.Disk, append(must(os.ReadFile(q.m.Machine.Disk)), 1), 0o600)
			}
		},
		"control: another name": func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Name = "two" } },
		"control: rules":        func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Rules.Allow = []string{"a.example"} } },
		"control: shares": func(q *qemu) func(*testing.T) {
			return func(*testing.T) { q.m.Shares = []manifest.Share{{Host: "/a", Guest: "/b"}} }
		},
		"control: a command":             func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Run.Command = []string{"x"} } },
		"control: a console":             func(q *qemu) func(*testing.T) { return func(*testing.T) { q.m.Machine.Console = "/c" } },
		"control: the same disk, copied": func(q *qemu) func(*testing.T) { return replace(&q.m.Machine.Disk) },
		"control: nothing":               func(q *qemu) func(*testing.T) { return func(*testing.T) {} },
	} {
		t.Run(what, func(t *testing.T) {
			q := testQEMU(t)
			before := keyOf(t, q)
			change(q)(t)
			if same, want := keyOf(t, q) == before, strings.HasPrefix(what, "control"); same != want {
				t.Errorf("that the key stays the same is %v", same)
			}
		})
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// TestRelease: another release of sb is another machine.
func TestRelease(t *testing.T) {
	in, err := testQEMU(t).inputs()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for i := range in {
		if in[i].Name == template.Release {
			found = in[i].Value != ""
			before := template.Key(in)
			if in[i].Value += "1"; template.Key(in) == before {
				t.Error("it has the same key")
			}
		}
	}
	if !found {
		t.Error("it is no input")
	}
}

// TestUsedDisk: a disk with something of somebody's on it is not saved.
func TestUsedDisk(t *testing.T) {
	q := testQEMU(t)
	if _, err := q.inputs(); err != nil {
		t.Fatalf("control: a new disk: %v", err)
	}
	newDisk(t, q.m.Machine.Disk, 1)
	if _, err := q.inputs(); err == nil || !strings.Contains(err.Error(), "its disk is not a new one") {
		t.Errorf("one that was mounted: %v", err)
	}
	disk := newDisk(t, q.m.Machine.Disk, 0)
	for used, empty := range map[uint32]bool{11: true, 12: false} { // as of mkfs.ext4 -d
		b := must(os.ReadFile(disk))
		binary.LittleEndian.PutUint32(b[1024:], 1024)
		binary.LittleEndian.PutUint32(b[1024+0x10:], 1024-used)
		os.WriteFile(disk, b, 0o600)
		if _, err := q.inputs(); (err == nil) != empty {
			t.Errorf("one with %d inodes in use: %v", used, err)
		}
	}
	q.m.Machine.Disk = "/dev/null"
	if _, err := q.inputs(); err == nil || !strings.Contains(err.Error(), "its disk is no file") {
		t.Errorf("a device: %v", err)
	}
	q.m.Machine.Disk = disk
	os.WriteFile(q.m.Machine.Disk, make([]byte, 8192), 0o600)
	if _, err := q.inputs(); err == nil {
		t.Error("one without a file system: no error")
	}
	os.WriteFile(newDisk(t, q.m.Machine.Disk, 0), append(must(os.ReadFile(q.m.Machine.Disk)), make([]byte, maxEmpty+1)...), 0o600)
	if _, err := q.inputs(); err == nil {
		t.Error("a full one: no error")
	}
}

// TestSavedHasNothing: what is booted to be saved has nothing of the sandbox's.
func TestSavedHasNothing(t *testing.T) {
	q := testQEMU(t)
	const secret = "secretword"
	m := q.m
	m.Name, m.Machine.Console, m.Machine.Disk = secret, "/"+secret, "/run/"+secret
	m.Rules.Allow, m.Run.Command = []string{secret}, []string{secret}
	m.Shares = []manifest.Share{{Host: "/" + secret, Guest: "/" + secret}}
	if !strings.Contains(strings.Join(q.argv(restore), " "), secret) {
		t.Error("control: nothing of the sandbox's is in the command line of a restore")
	}
	like := *q
	like.m, like.saved = machineAlone(m, "/template/disk"), "/template/memory"
	text, err := like.m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	view, err := (&qemu{parts: q.parts, m: like.m, program: "/bin/sh", accel: "tcg", saved: "/template/memory"}).files(save)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{string(text), strings.Join(like.argv(save), " "), strings.Join(append(view.Read, view.Write...), " ")} {
		if strings.Contains(what, secret) {
			t.Errorf("it is in %s", what)
		}
	}
}

// TestRestoredView: QEMU is shown no more of the file system for a restore than
// for a boot: what it is restored from least of all.
func TestRestoredView(t *testing.T) {
	q := testQEMU(t)
	q.program = "/bin/sh"
	boots, err1 := q.files(cold)
	restored, err2 := q.files(restore)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if strings.Join(boots.Write, " ") != strings.Join(restored.Write, " ") || strings.Join(boots.Read, " ") != strings.Join(restored.Read, " ") {
		t.Errorf("for a boot %v, for a restore %v", boots, restored)
	}
}

// TestSaveIsBounded: a QEMU that is at rest and never done with saving is ended, as
// one that does not come to rest.
func TestSaveIsBounded(t *testing.T) {
	for _, comes := range []bool{true, false} {
		var ends endpoints
		if err := ends.open(0); err != nil {
			t.Fatal(err)
		}
		v := &vm{control: ends.near.machine, conn: machine.NewConn(ends.near.machine), kill: sync.OnceFunc(ends.closeFar)}
		if comes {
			far, err := fd.Dup(ends.far.machine)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer far.Close()
				guest := machine.NewConn(far)
				for range 2 {
					var r machine.Request
					if guest.Receive(&r) != nil || guest.Send(machine.Answer{Done: true}) != nil {
						return
					}
				}
			}()
		}
		state, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		m := &manifest.Manifest{Machine: manifest.Machine{Disk: newDisk(t, filepath.Join(t.TempDir(), "disk"), 0)}}
		ended := make(chan error, 1)
		go func() { ended <- v.saveTo(state, ends.near.monitor, m, 100*time.Millisecond) }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("comes to rest: %v: no error", comes)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("comes to rest: %v: it is waited for", comes)
			v.kill()
			<-ended
		}
		ends.near.machine.Close()
		ends.near.monitor.Close()
		state.Close()
	}
}
