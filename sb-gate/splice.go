package main

import (
	"io"
	"sync"
	"syscall"

	"sb/lib/reason"
)

// outerWriter counts what goes out.
type outerWriter struct{ f *flow }

func (w outerWriter) Write(b []byte) (int, error) {
	n, err := w.f.outer.Write(b)
	w.f.up.Add(int64(n))
	w.f.touch()
	return n, err
}

// splice passes bytes both ways until both sides have ended: first what was
// held back of the guest's, then everything.
func (f *flow) splice(held []byte) {
	down := make(chan error, 1)
	go func() { down <- f.passDown() }()
	err := f.passUp(held)
	f.settle(err, <-down)
}

// settle ends the flow by how its two directions ended. A direction that broke
// has reset the flow already, which made the other one end.
func (f *flow) settle(up, down error) {
	if up != nil || down != nil {
		f.reset(reason.Reset)
		return
	}
	f.finish(reason.Done)
}

// passUp passes the guest's bytes out, and its end.
func (f *flow) passUp(held []byte) error {
	if len(held) > 0 {
		if _, err := (outerWriter{f}).Write(held); err != nil {
			f.reset(reason.Reset)
			return err
		}
	}
	if _, err := f.guest.WriteTo(outerWriter{f}); err != nil {
		f.reset(reason.Reset)
		return err
	}
	return f.outer.CloseWrite()
}

// passDown passes the server's bytes in, and its end.
func (f *flow) passDown() error {
	for {
		err := f.readOuter(func(b []byte) error {
			f.down.Add(int64(len(b)))
			f.touch()
			_, err := f.guest.Write(b)
			return err
		})
		switch err {
		case nil:
		case io.EOF:
			if f.parting.Load() {
				return nil
			}
			return f.guest.CloseWrite()
		default:
			f.reset(reason.Reset)
			return err
		}
	}
}

// buffers are held only while there is something in them: ten thousand idle
// flows need none.
var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// readOuter waits until the server has sent something, then takes a buffer and
// hands what is there to fn.
func (f *flow) readOuter(fn func([]byte) error) error {
	raw, err := f.outer.SyscallConn()
	if err != nil {
		return err
	}
	var buf *[256 << 10]byte
	var n int
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		buf = buffers.Get().(*[256 << 10]byte)
		n, rerr = ignoringEINTR(func() (int, error) { return syscall.Read(int(fd), buf[:]) })
		if rerr == syscall.EAGAIN {
			buffers.Put(buf)
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	defer buffers.Put(buf)
	switch {
	case rerr != nil:
		return rerr
	case n == 0:
		return io.EOF
	}
	return fn(buf[:n])
}

func ignoringEINTR(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
