package link

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
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

// room makes room for n frames that are read to.
func (v *vectors) room(n int) {
	v.parts = make([]unix.Iovec, n)
	for i := range v.parts {
		v.frames = append(v.frames, message(v.parts[i:i+1]))
	}
}

// into has frame i read to b.
func (v *vectors) into(i int, b []byte) { v.parts[i] = rawfile.IovecFromBytes(b) }

// read reads the frames that are there, as many as there is room for, and calls
// each with the place and the size of one. They stay as they are until it is
// called again.
func (in *inbox) read(fd int, each func(place **buffer.View, size int)) error {
	in.refill()
	n, _, err := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.frames[0])), uintptr(len(in.places)), unix.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return err
	}
	for i := range n {
		each(&in.places[i], int(in.frames[i].Len))
	}
	return nil
}
