package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sb/lib/fd"

	"golang.org/x/sys/unix"
)

// opensVar has this test's program be the one whose opens are answered.
const opensVar = "SB_TEST_OPENS"

// TestOpensChild is that program: it says what became of opening each file for
// writing, before and after it is told to go on.
func TestOpensChild(t *testing.T) {
	other := os.Getenv(opensVar)
	if other == "" {
		return // a part of TestHandOver
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := showOpens(3); err != nil {
		t.Fatal(err)
	}
	try := func(path string, flags int) {
		n, err := unix.Open(path, flags, 0)
		if err != nil {
			fmt.Printf("%s: open: %v\n", path, err)
			return
		}
		defer unix.Close(n)
		b := make([]byte, 100)
		got, _ := unix.Pread(n, b, 0)
		_, werr := unix.Pwrite(n, []byte("written"), 0)
		page, merr := unix.Mmap(n, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if merr == nil {
			unix.Munmap(page)
		}
		own, perr := unix.Mmap(n, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		if perr == nil {
			own[0] = 'X'
		}
		fmt.Printf("%s: read %q, write: %v, shared: %v, private: %v\n", path, b[:got], werr, merr, perr)
	}
	try(restoredMemory, unix.O_RDWR|unix.O_CLOEXEC)
	try(other, unix.O_RDWR)
	try(restoredMemory, unix.O_RDONLY)
	tryOldOpen()
	fmt.Println("sealed?")
	bufio.NewReader(os.Stdin).ReadString('\n')
	try(restoredMemory, unix.O_RDWR)
	try(other, unix.O_RDWR)
	try(other, unix.O_RDONLY)
	tryOtherCalls(other)
	os.Exit(0)
}

// tryOtherCalls opens a file for writing in every other way that there is.
func tryOtherCalls(path string) {
	try := func(name string, n int, err error) {
		unix.Close(n)
		fmt.Printf("%s: %v\n", name, err)
	}
	n, err := unix.Open(path, unix.O_WRONLY, 0)
	try("write only", n, err)
	n, err = unix.Open(path+".made", unix.O_CREAT|unix.O_RDONLY, 0o600)
	try("made", n, err)
	n, err = unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDWR})
	try("openat2", n, err)
	tryOldCalls(path, try)
}

// TestHandOver: the open of the saved memory gets a descriptor that can be read and
// mapped privately, and not written; other opens are as they were, until the machine
// is up; then no file can be opened for writing.
func TestHandOver(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name+strings.Repeat(" ", 4096)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := file("other")
	memory, err := os.Open(file("memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	near, far, err := fd.Pair("opens", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOpensChild$")
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(os.Environ(), opensVar+"="+other), []*os.File{far}, os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	far.Close()
	socket, err := pollable(near)
	if err != nil {
		t.Fatal(err)
	}
	ctx, seal := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- handOver(ctx, socket, restoredMemory, memory) }()
	lines := bufio.NewScanner(out)
	expect := func(want ...string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the child ended (%v)", lines.Err())
		}
		for _, w := range want {
			if !strings.Contains(lines.Text(), w) {
				t.Errorf("%q, want %q", lines.Text(), w)
			}
		}
	}
	expect(restoredMemory+`: read "memory `, "write: bad file descriptor", "shared: permission denied", "private: <nil>")
	expect(other+`: read "other `, "write: <nil>", "shared: <nil>")
	expect(restoredMemory + ": open: no such file")
	expectOldOpen(expect)
	expect("sealed?")
	seal()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	fmt.Fprintln(in)
	expect(restoredMemory + ": open: " + unix.ENOSYS.Error())
	expect(other + ": open: " + unix.ENOSYS.Error())
	expect(other+`: read "written`, "write: bad file descriptor")
	expect("write only: " + unix.ENOSYS.Error())
	expect("made: " + unix.ENOSYS.Error())
	expect("openat2: " + unix.ENOSYS.Error())
	expectOldCalls(expect)
	if b, err := os.ReadFile(memory.Name()); err != nil || !strings.HasPrefix(string(b), "memory ") {
		t.Errorf("the file is %.20q (%v)", b, err)
	}
}

// TestHandOverEnds: with the process whose opens are answered the answering ends,
// also where that process shows none.
func TestHandOverEnds(t *testing.T) {
	memory, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for _, child := range []string{"", filepath.Join(t.TempDir(), "nothing")} {
		near, far, err := fd.Pair("opens", fd.Stream)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestOpensChild$") // without the variable it does nothing
		if child != "" {
			cmd.Env = append(os.Environ(), opensVar+"="+child)
		}
		cmd.ExtraFiles = []*os.File{far}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		far.Close()
		socket, err := pollable(near)
		if err != nil {
			t.Fatal(err)
		}
		if err := handOver(context.Background(), socket, restoredMemory, memory); err != nil {
			t.Error(err)
		}
		cmd.Wait()
	}
}
