package main

import (
	"errors"
	"io"
	"math"
	"net"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// guestConn is the guest's half of a flow.
type guestConn struct {
	*gonet.TCPConn
	ep      tcpip.Endpoint
	wq      *waiter.Queue
	roomy   bool // one of the first
	buffers *pool
}

func newGuestConn(wq *waiter.Queue, ep tcpip.Endpoint, roomy bool) *guestConn {
	c := &guestConn{gonet.NewTCPConn(wq, ep), ep, wq, roomy, roomyBuffers}
	if !roomy {
		c.buffers = smallBuffers
		ep.SocketOptions().SetSendBufferSize(smallWindow, true)
		ep.SocketOptions().SetReceiveBufferSize(smallTaken, true)
	}
	return c
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
	c.part()
}

// part closes the connection, and waits until the guest has taken what was sent
// to it: as long as it has not, the connection holds memory, and so its slot. A
// guest that takes too long is reset.
func (c *guestConn) part() {
	wait, notify := waiter.NewChannelEntry(waiter.EventHUp)
	c.wq.EventRegister(&wait)
	defer c.wq.EventUnregister(&wait)
	c.Close()
	late := time.NewTimer(partTime)
	defer late.Stop()
	for c.holds() {
		select {
		case <-notify:
		case <-late.C:
			c.reset()
			return
		}
	}
}

// holds says whether a closed connection waits for something of the guest's.
func (c *guestConn) holds() bool {
	switch tcp.EndpointState(c.ep.State()) {
	case tcp.StateTimeWait, tcp.StateClose, tcp.StateError:
		return false
	}
	return true
}

// pass hands what the guest sends to fn until it ends. A buffer is taken when
// there is something to put in it, and the stack's own lock, under which it also
// sends, is not held while fn waits for a server.
func (c *guestConn) pass(fn func([]byte) error) error {
	err := c.passMost(math.MaxInt64, fn)
	if err == io.EOF {
		return nil
	}
	return err
}

// passMost hands the next n bytes that the guest sends to fn. If it ends before
// them, that is io.EOF.
func (c *guestConn) passMost(n int64, fn func([]byte) error) error {
	wait, notify := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	c.wq.EventRegister(&wait)
	defer c.wq.EventUnregister(&wait)
	for n > 0 {
		took, err := c.passSome(n, fn)
		n -= int64(took)
		switch {
		case err == errNothingYet:
			<-notify
		case err != nil:
			return err
		}
	}
	return nil
}

var errNothingYet = errors.New("nothing to read yet")

// passSome hands what is there to fn, n bytes at most.
func (c *guestConn) passSome(n int64, fn func([]byte) error) (int, error) {
	buf := c.buffers.get()
	defer c.buffers.put(buf)
	w := tcpip.SliceWriter(buf[:min(n, int64(len(buf)))])
	res, err := c.ep.Read(&w, tcpip.ReadOptions{})
	switch {
	case err == nil:
		c.ep.ModerateRecvBuf(res.Count)
		return res.Count, fn(buf[:res.Count])
	case is[*tcpip.ErrWouldBlock](err):
		return 0, errNothingYet
	}
	return 0, stackError("read", err)
}

// awaitRoom waits until the stack has room for something, or will not.
func (c *guestConn) awaitRoom() {
	wait, notify := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	c.wq.EventRegister(&wait)
	defer c.wq.EventUnregister(&wait)
	if c.ep.Readiness(waiter.WritableEvents) == 0 {
		<-notify
	}
}

// guestNet tells an error of the guest's half from others.
const guestNet = "guest"

// stackError is an error of the stack's as one of a connection.
func stackError(what string, err tcpip.Error) error {
	switch {
	case err == nil:
		return nil
	case is[*tcpip.ErrClosedForReceive](err):
		return io.EOF
	}
	return &net.OpError{Op: what, Net: guestNet, Err: errors.New(err.String())}
}

func is[T tcpip.Error](err tcpip.Error) bool {
	_, ok := err.(T)
	return ok
}
