package confine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// foreign32 makes a system call by i386's numbers, from a 64-bit program.
func foreign32(world) error {
	code, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	copy(code, []byte{
		0xb8, 20, 0, 0, 0, // mov eax, 20: getpid
		0xcd, 0x80, // int 0x80
		0xc3, // ret
	})
	entry := &code[0]
	closure := &entry // a function value points to its code's address
	call := *(*func() int)(unsafe.Pointer(&closure))
	if got := call(); got != unix.Getpid() {
		return unix.Errno(-got)
	}
	return nil
}

// foreignX32 makes a system call by x32's numbers. Most kernels have none of
// them, and say so.
func foreignX32(world) error {
	_, _, errno := unix.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
	if errno != 0 && errno != unix.ENOSYS {
		return errno
	}
	return nil
}
