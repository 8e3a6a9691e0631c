package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"sb/lib/fd"
	"sb/lib/say"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// QEMU opens the file of its memory for writing, also where it maps it privately.
// What many machines are restored from must not be writable for any of them. So
// the name that QEMU is given leads nowhere: the open is seen here (seccomp's user
// notification) and answered with a descriptor that can only be read. Other opens
// for writing go on as if nobody had looked, to what Landlock and the mounts say of
// them; when the machine is up nobody answers any more, and all of them fail.

// Of linux/seccomp.h.
const (
	seccompNewListener = 1 << 3
	seccompUserNotif   = 0x7fc00000
	notifRecv          = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifSend          = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	notifAddFD         = 0x40182103 // SECCOMP_IOCTL_NOTIF_ADDFD
	notifContinue      = 1 << 0     // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	addFDSend          = 1 << 1     // SECCOMP_ADDFD_FLAG_SEND: it is the answer too
)

// notif is struct seccomp_notif.
type notif struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// notifResp is struct seccomp_notif_resp.
type notifResp struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// notifFD is struct seccomp_notif_addfd.
type notifFD struct {
	id                             uint64
	flags, src, newfd, newfd_flags uint32
}

// shownCall is a call that opens a file, and which of its arguments have the path
// and the flags. One without flags is always for writing.
type shownCall struct {
	number      uint32
	path, flags int
}

const noFlags = -1

// shownCalls are all that can open a file for writing. What openat2 is to do lies in
// memory, where a filter cannot look: each of them counts.
var shownCalls = append([]shownCall{{unix.SYS_OPENAT, 1, 2}, {unix.SYS_OPENAT2, 1, noFlags}}, oldCalls...)

// opensFilter passes on each call that opens a file for writing, makes or empties one.
func opensFilter() ([]bpf.RawInstruction, error) {
	const numberAt, argsAt, allow = 0, 16, 0x7fff0000 // struct seccomp_data; SECCOMP_RET_ALLOW
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: numberAt, Size: 4}}
	for _, c := range shownCalls {
		if c.flags == noFlags {
			p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.number, SkipFalse: 1}, bpf.RetConstant{Val: seccompUserNotif})
			continue
		}
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.number, SkipFalse: 4},
			bpf.LoadAbsolute{Off: uint32(argsAt + 8*c.flags), Size: 4}, // the low half
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC, SkipFalse: 1},
			bpf.RetConstant{Val: seccompUserNotif},
			bpf.RetConstant{Val: allow})
	}
	return bpf.Assemble(append(p, bpf.RetConstant{Val: allow}))
}

// showOpens has this thread's opens for writing, and those of the program that it
// becomes, answered by whoever gets the listener, which is sent on socket.
func showOpens(socket int) error {
	filter, err := opensFilter()
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	const setModeFilter = 1
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, seccompNewListener, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("watch for opens with seccomp: %w", errno)
	}
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return fmt.Errorf("pass the listener on: %w", err)
	}
	return errors.Join(unix.Close(int(listener)), unix.Close(socket))
}

// answerOpens answers the opens of the QEMU that sends its listener on socket:
// that of restoredMemory gets a descriptor of memory. It ends with QEMU, or when
// seal is called.
func (v *vm) answerOpens(socket, memory *os.File) error {
	socket, err := pollable(socket)
	if err != nil {
		return err
	}
	own, err := fd.Dup(memory)
	if err != nil {
		return err
	}
	ctx, seal := context.WithCancel(context.Background())
	v.seal = seal
	go func() {
		defer own.Close()
		if err := handOver(ctx, socket, restoredMemory, own); err != nil {
			say.Warn("%v", err)
			v.kill()
		}
	}()
	return nil
}

// handOver answers opens until the process that makes them has ended, or ctx.
func handOver(ctx context.Context, socket *os.File, path string, file *os.File) error {
	listener, err := receiveListener(socket)
	socket.Close()
	if errors.Is(err, io.EOF) {
		return nil // it ended before, and says why
	}
	if err != nil {
		return fmt.Errorf("watch QEMU's opens: %w", err)
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	for gone := false; !gone; {
		err := raw.Read(func(fd uintptr) bool {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(ready, 0); n == 0 || err != nil {
				return false
			}
			if gone = ready[0].Revents&unix.POLLIN == 0; !gone {
				answerOpen(fd, path, file)
			}
			return true
		})
		if err != nil {
			return nil // it was closed
		}
	}
	return nil
}

func receiveListener(socket *os.File) (*os.File, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fds []int
	var failed error
	err = raw.Read(func(s uintptr) bool {
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := unix.Recvmsg(int(s), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EAGAIN {
			return false
		}
		var all []unix.SocketControlMessage
		if failed = err; failed == nil {
			if all, failed = unix.ParseSocketControlMessage(oob[:n]); failed == nil && len(all) == 1 {
				fds, failed = unix.ParseUnixRights(&all[0])
			}
		}
		return true
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	if len(fds) != 1 {
		return nil, io.EOF
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "listener"), nil
}

// answerOpen answers one open. Whoever asks can change the path behind our back;
// all it gains is a descriptor that it was to be given anyway.
func answerOpen(listener uintptr, path string, file *os.File) {
	var n notif
	if seccompIoctl(listener, notifRecv, unsafe.Pointer(&n)) != nil {
		return // it was killed meanwhile
	}
	if opens(n, path) {
		give := notifFD{id: n.id, flags: addFDSend, src: uint32(file.Fd()), newfd_flags: unix.O_CLOEXEC}
		if seccompIoctl(listener, notifAddFD, unsafe.Pointer(&give)) == nil {
			return
		}
	}
	r := notifResp{id: n.id, flags: notifContinue}
	seccompIoctl(listener, notifSend, unsafe.Pointer(&r))
}

// opens reports whether it is path that is opened.
func opens(n notif, path string) bool {
	i := slices.IndexFunc(shownCalls, func(c shownCall) bool { return int64(c.number) == int64(n.nr) })
	if i < 0 {
		return false
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return false
	}
	defer mem.Close()
	b := make([]byte, len(path)+1)
	_, err = mem.ReadAt(b, int64(n.args[shownCalls[i].path]))
	return err == nil && string(b) == path+"\x00"
}

func seccompIoctl(fd, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
	runtime.KeepAlive(arg)
	if errno != 0 {
		return errno
	}
	return nil
}
