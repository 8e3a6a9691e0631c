package link

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/rawfile"
)

// vectors are what the kernel is told of many frames in one call.
type vectors struct {
	parts  []unix.Iovec
	frames []rawfile.MMsgHdr
}

// set describes the frames of b that were not taken yet.
func (v *vectors) set(b *batch) {
	v.parts, v.frames = v.parts[:0], v.frames[:0]
	for i := b.sent; i < len(b.ends); i++ {
		for _, part := range b.frame(i) {
			v.parts = append(v.parts, rawfile.IovecFromBytes(part))
		}
	}
	// Only now that the parts do not move any more can they be pointed at.
	at := 0
	for i := b.sent; i < len(b.ends); i++ {
		n := len(b.frame(i))
		v.frames = append(v.frames, message(v.parts[at:at+n]))
		at += n
	}
}

func message(parts []unix.Iovec) (m rawfile.MMsgHdr) {
	m.Msg.Iov = &parts[0]
	m.Msg.SetIovlen(len(parts))
	return m
}

// write writes what is left of the batch, and reports whether the machine does
// not take it because it does not read.
func (e *Endpoint) write(fd int) (full bool) {
	for e.out.left() > 0 {
		e.vectors.set(e.out)
		n, err := rawfile.NonBlockingSendMMsg(fd, e.vectors.frames)
		switch err {
		case 0:
			e.out.sent += n
		case unix.EINTR:
		case unix.EAGAIN:
			return true
		default:
			e.out.sent++ // nobody is there to take it
		}
	}
	return false
}

// into describes empty frames, to be read to.
func (v *vectors) into(frames [][]byte) {
	for _, f := range frames {
		v.parts = append(v.parts, rawfile.IovecFromBytes(f))
	}
	for i := range v.parts {
		v.frames = append(v.frames, message(v.parts[i:i+1]))
	}
}

// read reads the frames that are there, as many as there is room for, and calls
// each with them. They stay as they are until it is called again.
func (in *inbox) read(fd int, each func([]byte)) error {
	n, _, err := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.vectors.frames[0])), uintptr(len(in.frames)), unix.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return err
	}
	for i := range n {
		each(in.frames[i][:in.vectors.frames[i].Len])
	}
	return nil
}
