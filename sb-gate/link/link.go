// Package link is the gate's end of the wire: a link endpoint of the network
// stack on a datagram socket, each datagram a bare Ethernet frame.
//
// The cost of a frame is mostly fixed, so segments of one flow that arrive
// together are joined before the stack sees them (GRO), and the stack hands over
// large segments that are cut here (GSO).
package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"sb/lib/reason"
	"sb/sb-gate/frame"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	maxPanics = 100
	sockBuf   = 4 << 20 // asked for; an ordinary user gets what net.core.*mem_max allows

	// writeWait is how long a frame waits for a machine that does not read. Then
	// it is dropped, as on any Ethernet: a stuck guest must not hold the stack.
	writeWait = 2 * time.Second
)

// Endpoint implements stack.LinkEndpoint and stack.GSOEndpoint.
type Endpoint struct {
	conn    *net.UnixConn
	raw     syscall.RawConn
	filter  *frame.Filter
	dropped func(reason.Code) // told of every frame that was not let in

	sending sync.Mutex
	out     *batch
	due     chan struct{} // something waits to be sent
	closed  bool
	vectors vectors
	stuck   bool // the machine did not take the last frame in time

	dispatcher stack.NetworkDispatcher
	run        run
	panics     int
	ended      chan struct{}
	err        error
	once       sync.Once
}

// New takes over f, one end of a datagram pair.
func New(f *os.File, filter *frame.Filter, dropped func(reason.Code)) (*Endpoint, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open the wire: %w", err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("open the wire: not a local socket")
	}
	conn.SetReadBuffer(sockBuf)
	conn.SetWriteBuffer(sockBuf)
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("open the wire: %w", err)
	}
	e := &Endpoint{conn: conn, raw: raw, filter: filter, dropped: dropped, out: newBatch(), due: make(chan struct{}, 1), ended: make(chan struct{})}
	go e.sendHeld()
	return e, nil
}

// Wait implements stack.LinkEndpoint: it returns when the wire was closed.
func (e *Endpoint) Wait() { <-e.ended }

// Ended is closed when nothing more is read; then Err says why.
func (e *Endpoint) Ended() <-chan struct{} { return e.ended }

// Err is why the wire ended: nil if Close ended it.
func (e *Endpoint) Err() error { return e.err }

// Close implements stack.LinkEndpoint. What waits is sent before.
func (e *Endpoint) Close() {
	if e.sendLast() {
		e.conn.Close() // which waits for who reads, who may be sending
	}
}

// Attach implements stack.LinkEndpoint: from then on frames come in.
func (e *Endpoint) Attach(d stack.NetworkDispatcher) {
	if d == nil || e.dispatcher != nil {
		return
	}
	e.dispatcher = d
	go e.read()
}

// IsAttached implements stack.LinkEndpoint.
func (e *Endpoint) IsAttached() bool { return e.dispatcher != nil }

func (e *Endpoint) read() {
	// One byte more than the largest frame, so that a longer one is seen as such.
	in := newInbox(e.filter.MTU + frame.HeaderLen + 1)
	for e.err == nil {
		var fail error
		err := e.raw.Read(func(fd uintptr) bool {
			fail = in.read(int(fd), e.take)
			switch fail {
			case unix.EAGAIN, unix.ECONNREFUSED, unix.ECONNRESET:
				fail = nil // the last two: the machine is not there yet, or no more
				return false
			case unix.EINTR:
				fail = nil
			}
			return true
		})
		e.guarded(e.hand)
		if fail == nil {
			fail = err
		}
		if errors.Is(fail, net.ErrClosed) {
			break
		}
		if fail != nil && e.err == nil {
			e.err = fmt.Errorf("read the wire: %w", fail)
		}
	}
	e.once.Do(func() { close(e.ended) })
}

// take adds one frame to those that are handed to the stack, or drops it.
func (e *Endpoint) take(place **buffer.View, size int) {
	good, why := e.filter.Check((*place).AsSlice()[:size])
	if why != "" {
		e.dropped(why)
		return
	}
	if !e.run.join(good) {
		e.guarded(e.hand)
		e.run.begin(good, place)
	}
}

// guarded runs a part of the stack, which is large and parses what the guest
// wrote. A panic in it costs what it was about, and too many of them the gate.
func (e *Endpoint) guarded(fn func()) {
	defer func() {
		if r := recover(); r != nil {
			e.dropped(reason.FrameMalformed)
			if e.panics++; e.panics > maxPanics {
				e.err = fmt.Errorf("read the wire: the network stack panicked %d times, last: %v", e.panics, r)
			}
		}
	}()
	fn()
}

// hand gives the stack what was joined, if anything.
func (e *Endpoint) hand() {
	if len(e.run.parts) == 0 {
		return
	}
	packet := e.run.packet()
	e.run.end()
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: packet})
	defer pkt.DecRef()
	head, _ := pkt.LinkHeader().Consume(frame.HeaderLen)
	pkt.NetworkProtocolNumber = header.Ethernet(head).Type()
	// There is no noise on this wire. A wrong checksum can only be meant.
	pkt.RXChecksumValidated = true
	e.dispatcher.DeliverNetworkPacket(pkt.NetworkProtocolNumber, pkt)
}

// MTU implements stack.LinkEndpoint.
func (e *Endpoint) MTU() uint32 { return uint32(e.filter.MTU) }

// SetMTU implements stack.LinkEndpoint; the wire's is fixed.
func (e *Endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (e *Endpoint) MaxHeaderLength() uint16 { return frame.HeaderLen }

// LinkAddress implements stack.LinkEndpoint.
func (e *Endpoint) LinkAddress() tcpip.LinkAddress { return tcpip.LinkAddress(e.filter.GatewayMAC) }

// SetLinkAddress implements stack.LinkEndpoint; the gate's is fixed.
func (e *Endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint.
func (e *Endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// SetOnCloseAction implements stack.LinkEndpoint.
func (e *Endpoint) SetOnCloseAction(func()) {}

// ARPHardwareType implements stack.LinkEndpoint.
func (e *Endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// ParseHeader implements stack.LinkEndpoint; the read loop has done it.
func (e *Endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// AddHeader implements stack.LinkEndpoint. There is one machine on the wire, so
// every frame is for it.
func (e *Endpoint) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(frame.HeaderLen)).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(e.filter.GatewayMAC),
		DstAddr: tcpip.LinkAddress(e.filter.GuestMAC),
		Type:    pkt.NetworkProtocolNumber,
	})
}
