package main

import (
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

// WriteTo passes what the guest sends to w until it ends, straight from the
// stack's buffers: a flow that is idle holds none.
func (c *guestConn) WriteTo(w io.Writer) (total int64, err error) {
	wait, notify := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	c.wq.EventRegister(&wait)
	defer c.wq.EventUnregister(&wait)
	out := &errWriter{w: w}
	for {
		res, terr := c.ep.Read(out, tcpip.ReadOptions{})
		total += int64(res.Count)
		switch {
		case out.err != nil:
			return total, out.err
		case terr == nil:
		case is[*tcpip.ErrWouldBlock](terr):
			<-notify
		case is[*tcpip.ErrClosedForReceive](terr):
			return total, nil
		default:
			return total, &net.OpError{Op: "read", Net: "guest", Err: tcpError{terr}}
		}
	}
}

func is[T tcpip.Error](err tcpip.Error) bool {
	_, ok := err.(T)
	return ok
}

type tcpError struct{ why tcpip.Error }

func (e tcpError) Error() string { return e.why.String() }

// errWriter keeps the error of a write, which the stack does not pass back.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(b []byte) (int, error) {
	n, err := e.w.Write(b)
	if err != nil {
		e.err = err
	}
	return n, err
}
