package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tryOldCalls opens a file for writing by the calls that newer processors lack.
func tryOldCalls(path string, try func(name string, n int, err error)) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		panic(err)
	}
	at := uintptr(unsafe.Pointer(p))
	n, _, errno := unix.Syscall(unix.SYS_OPEN, at, unix.O_RDONLY, 0)
	try("open to read", int(n), errno)
	n, _, errno = unix.Syscall(unix.SYS_OPEN, at, unix.O_RDWR, 0)
	try("open", int(n), errno)
	n, _, errno = unix.Syscall(unix.SYS_CREAT, at, 0o600, 0)
	try("creat", int(n), errno)
}

// tryOldOpen opens the saved memory as a QEMU with another C library does.
func tryOldOpen() {
	p, err := unix.BytePtrFromString(restoredMemory)
	if err != nil {
		panic(err)
	}
	n, _, errno := unix.Syscall(unix.SYS_OPEN, uintptr(unsafe.Pointer(p)), unix.O_RDWR, 0)
	_, err = unix.Pwrite(int(n), []byte("written"), 0)
	unix.Close(int(n))
	fmt.Printf("open: %v, write: %v\n", errno, err)
}

func expectOldOpen(expect func(...string)) { expect("open: errno 0, write: bad file descriptor") }

func expectOldCalls(expect func(...string)) {
	expect("open to read: errno 0")
	expect("open: " + unix.ENOSYS.Error())
	expect("creat: " + unix.ENOSYS.Error())
}
