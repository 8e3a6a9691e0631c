package main

import (
	"errors"
	"io"
	"net"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/waiter"
)

// guestConn is the guest's half of a flow.
type guestConn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
	wq *waiter.Queue
}

func newGuestConn(wq *waiter.Queue, ep tcpip.Endpoint) *guestConn {
	return &guestConn{gonet.NewTCPConn(wq, ep), ep, wq}
}

// reset ends the connection with a RST.
func (c *guestConn) reset() { c.ep.Abort() }

// farewellTime is how long a refused guest is listened to, so that the answer is
// not lost in a reset.
const farewellTime = 2 * time.Second

// farewell sends a last answer and ends the connection.
func (c *guestConn) farewell(answer []byte) {
	c.SetDeadline(time.Now().Add(farewellTime))
	c.Write(answer)
	c.CloseWrite()
	io.Copy(io.Discard, c.TCPConn)
	c.Close()
}

// pass hands what the guest sends to fn until it ends. A buffer is taken when
// there is something to put in it, and the stack's own lock, under which it also
// sends, is not held while fn waits for a server.
func (c *guestConn) pass(fn func([]byte) error) error {
	wait, notify := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	c.wq.EventRegister(&wait)
	defer c.wq.EventUnregister(&wait)
	for {
		err := c.passSome(fn)
		switch {
		case err == errNothingYet:
			<-notify
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

var errNothingYet = errors.New("nothing to read yet")

// passSome hands what is there to fn.
func (c *guestConn) passSome(fn func([]byte) error) error {
	buf := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(buf)
	w := tcpip.SliceWriter(buf[:])
	res, terr := c.ep.Read(&w, tcpip.ReadOptions{})
	switch {
	case terr == nil:
		c.ep.ModerateRecvBuf(res.Count)
		return fn(buf[:res.Count])
	case is[*tcpip.ErrWouldBlock](terr):
		return errNothingYet
	case is[*tcpip.ErrClosedForReceive](terr):
		return io.EOF
	}
	return &net.OpError{Op: "read", Net: "guest", Err: errors.New(terr.String())}
}

func is[T tcpip.Error](err tcpip.Error) bool {
	_, ok := err.(T)
	return ok
}
