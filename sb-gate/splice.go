package main

import (
	"io"

	"sb/lib/reason"
)

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
func (f *flow) passDown() error { return f.passDownBy(f.down) }

// passDownBy is passDown by way of pass, which passes bytes as down does.
func (f *flow) passDownBy(pass func([]byte) error) error {
	for {
		err := f.outer.next(pass)
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
