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

// inbox is where frames are read to.
type inbox struct {
	frames [][]byte
	v      vectors
}

// newInbox has room for some frames of size bytes.
func newInbox(size int) *inbox {
	in := &inbox{}
	for range min(maxBatch, max(8, inboxSize/size)) {
		in.frames = append(in.frames, make([]byte, size))
		in.v.parts = append(in.v.parts, rawfile.IovecFromBytes(in.frames[len(in.frames)-1]))
	}
	for i := range in.v.parts {
		in.v.frames = append(in.v.frames, message(in.v.parts[i:i+1]))
	}
	return in
}

// read reads the frames that are there, as many as there is room for, and calls
// each with them.
func (in *inbox) read(fd int, each func([]byte)) error {
	n, _, err := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.v.frames[0])), uintptr(len(in.v.frames)), unix.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return err
	}
	for i := range n {
		each(in.frames[i][:in.v.frames[i].Len])
	}
	return nil
}
