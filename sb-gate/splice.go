package main

import (
	"io"

	"sb/lib/reason"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// splice passes bytes both ways until both sides have ended: first what was
// held back of the guest's, then everything.
func (f *flow) splice(held []byte) {
	down := make(chan error, 1)
	go func() {
		growStack()
		down <- f.passDown()
	}()
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

// up passes bytes of the guest's out.
func (f *flow) up(b []byte) error {
	_, err := f.outer.Write(b)
	f.touch()
	return err
}

// passUp passes the guest's bytes out, and its end.
func (f *flow) passUp(held []byte) error {
	err := f.up(held)
	if err == nil {
		err = f.guest.pass(f.up)
	}
	if err == nil {
		err = f.outer.closeWrite()
	}
	if err != nil {
		f.reset(reason.Reset)
	}
	return err
}

// down passes bytes of the server's in.
func (f *flow) down(b []byte) error {
	f.touch()
	_, err := f.guest.Write(b)
	return err
}

// passDown passes the server's bytes in, and its end.
func (f *flow) passDown() error { return f.passDownBy(f.passAnswered) }

// passDownBy is passDown by way of some, which passes what the server has sent.
func (f *flow) passDownBy(some func() error) error {
	for {
		err := some()
		if err == nil {
			continue
		}
		if err == io.EOF {
			if f.parting.Load() {
				return nil
			}
			if err = f.guest.CloseWrite(); err == nil {
				return nil
			}
		}
		f.reset(reason.Reset)
		return err
	}
}

// passAnswered waits until the server has sent something and passes it.
func (f *flow) passAnswered() error {
	if f.guest.roomy {
		return f.outer.next(f.down) // fewer calls
	}
	n, err := f.outer.awaitSome()
	if err != nil {
		return err
	}
	f.touch()
	// From the socket to the stack's own memory: nothing else is held for a guest
	// that does not read.
	for {
		_, err := f.guest.ep.Write(&inlet{f.outer, n}, tcpip.WriteOptions{})
		if !is[*tcpip.ErrWouldBlock](err) {
			return stackError("write", err)
		}
		f.guest.awaitRoom()
	}
}

// inlet is the next so many bytes of a server's.
type inlet struct {
	from *outerConn
	left int
}

// Len implements tcpip.Payloader.
func (in *inlet) Len() int { return in.left }

// Read implements tcpip.Payloader. The stack asks for no byte, too.
func (in *inlet) Read(b []byte) (n int, err error) {
	if b = b[:min(len(b), in.left)]; len(b) > 0 {
		n, err = in.from.Read(b)
		in.left -= n
	}
	return n, err
}
