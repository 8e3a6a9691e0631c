package confine

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What no confined process has a use for: to trace, mount, load, or reach for
// other namespaces, files by handle, and the kernel's less travelled parts.
var neverCalls = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_ACCT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
}

// To open a socket or give one an address. What was inherited goes on working.
var socketCalls = []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4}

// To start a program.
var execCalls = []uint32{unix.SYS_EXECVE, unix.SYS_EXECVEAT}

// Calls refuses system calls to this process, all its threads: what no confined
// process needs, and sockets and new programs unless they are allowed. lacks
// names what this kernel cannot do.
func Calls(sockets, exec bool) (lacks string, err error) {
	deny := append([]uint32(nil), neverCalls...)
	if !sockets {
		deny = append(deny, socketCalls...)
	}
	if !exec {
		deny = append(deny, execCalls...)
	}
	filter, err := bpf.Assemble(program(deny))
	if err != nil {
		return "", fmt.Errorf("restrict system calls: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("refuse new privileges: %w", err)
	}
	const setModeFilter, allThreads = 1, 1 // linux/seccomp.h: SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
	prog := struct {
		n      uint16
		filter *bpf.RawInstruction
	}{uint16(len(filter)), &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&prog)))
	switch errno {
	case 0:
		return "", nil
	case unix.ENOSYS, unix.EINVAL:
		return "seccomp", nil
	}
	return "", fmt.Errorf("restrict system calls with seccomp: %w", errno)
}

// program is the filter: EPERM for the calls in deny, death for a call by
// another architecture's numbers, by which all of them could be reached.
func program(deny []uint32) []bpf.Instruction {
	const (
		numberAt, archAt = 0, 4       // struct seccomp_data
		allow            = 0x7fff0000 // SECCOMP_RET_ALLOW
		refuse           = 0x00050000 | uint32(unix.EPERM)
		kill             = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	)
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archAt, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: numberAt, Size: 4},
		// x32's numbers, on the same architecture (asm/unistd.h: __X32_SYSCALL_BIT).
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 0x40000000, SkipFalse: 1},
		bpf.RetConstant{Val: kill},
	}
	for _, nr := range deny {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: 1}, bpf.RetConstant{Val: refuse})
	}
	return append(p, bpf.RetConstant{Val: allow})
}
