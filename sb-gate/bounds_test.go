//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"
	"sb/sb-gate/journal"
	"sb/sb-gate/link"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A guest that does not take what a connection ends with is reset: it would be
// held in memory, without a slot, for as long as the stack sends it again.
func TestPart(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example:7")
	s.inexact = true
	speak := make(chan struct{})
	w := s.site("a.example", 7, func(c net.Conn) {
		io.ReadAll(c)
		<-speak
		c.Write(make([]byte, 64<<10))
	})
	s.dial("a.example", 7).Close() // the control: a connection that ends as it should
	last := s.dial("a.example", 7)
	io.WriteString(last, "x")
	last.CloseWrite()
	port := uint16(last.LocalAddr().(*net.TCPAddr).Port)
	frames := s.guest.tap()
	s.guest.dropTCP(port, port)
	close(speak)
	s.hasN(2, "close tcp a.example "+w.at.String()+" done -")
	late := time.After(partTime + 10*time.Second)
	for {
		select {
		case f := <-frames:
			if len(f) > 47 && f[23] == 6 && binary.BigEndian.Uint16(f[36:]) == port && f[47]&byte(header.TCPFlagRst) != 0 {
				s.guest.dropTCP(0, 0)
				return
			}
		case <-late:
			t.Fatal("it is not reset")
		}
	}
}

// Of a connection that is not one of the first, little waits in the gate, and it
// passes little at a time.
func TestSmallWindow(t *testing.T) {
	st := stack.New(stack.Options{NetworkProtocols: []stack.NetworkProtocolFactory{ipv4.NewProtocol}, TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol}})
	defer st.Destroy()
	tuneTCP(st)
	for _, roomy := range []bool{true, false} {
		send, receive, buffer := int64(roomyWindow), int64(roomyWindow), roomyBuffer
		if !roomy {
			send, receive, buffer = smallWindow, smallTaken, smallWindow
		}
		var wq waiter.Queue
		ep, err := st.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
		if err != nil {
			t.Fatal(err)
		}
		c := newGuestConn(&wq, ep, roomy)
		if sends, receives := ep.SocketOptions().GetSendBufferSize(), ep.SocketOptions().GetReceiveBufferSize(); sends != send || receives != receive {
			t.Errorf("roomy %v: windows of %d and %d, want %d and %d", roomy, sends, receives, send, receive)
		}
		b := c.buffers.get()
		if c.buffers.put(b); len(b) != buffer {
			t.Errorf("roomy %v: a buffer of %d, want %d", roomy, len(b), buffer)
		}
		c.Close()
	}
}

// What an ended connection leaves in the stack is gone soon, and none has larger
// buffers than it was given.
func TestStackBounds(t *testing.T) {
	m, _ := policyOf(t)
	near, far, err := fd.Pair("frames", fd.Dgram)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	g := &gate{net: m.Network, flows: newFlows()}
	if g.wire, err = link.New(near, filter(g.net), func(reason.Code) {}); err != nil {
		t.Fatal(err)
	}
	if err := g.openStack(g.wire); err != nil {
		t.Fatal(err)
	}
	defer g.closeStack()
	var rest tcpip.TCPTimeWaitTimeoutOption
	var half tcpip.TCPLingerTimeoutOption
	var sends tcpip.TCPSendBufferSizeRangeOption
	var receives tcpip.TCPReceiveBufferSizeRangeOption
	for _, o := range []tcpip.GettableTransportProtocolOption{&rest, &half, &sends, &receives} {
		if err := g.stack.TransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			t.Fatal(err)
		}
	}
	if time.Duration(rest) != restTime || time.Duration(half) != partTime || sends.Max != roomyWindow || receives.Max != roomyWindow {
		t.Errorf("%v %v %+v %+v", time.Duration(rest), time.Duration(half), sends, receives)
	}
}

// crowded is a socket of which some datagrams were lost before each that is read.
type crowded struct {
	net.PacketConn
	left int
	lost tcpip.StatCounter
}

func (c *crowded) ReadFrom(b []byte) (int, net.Addr, error) {
	if c.left--; c.left < 0 {
		return 0, nil, io.EOF
	}
	c.lost.IncrementBy(100)
	return wire.MaxMessage + 1, &net.UDPAddr{}, nil
}

// Questions that come faster than they are read are lost, and counted.
func TestLostQuestions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{log: journal.New(f, nil)}
	c := &crowded{left: 5}
	g.dnsUDP(c, &c.lost)
	g.log.Close()
	log := readLog(t, path)
	if lost, read := log.count("deny dns - - query-budget"), log.count("deny dns - - dns-malformed"); lost != 500 || read != 5 {
		t.Errorf("%d are counted as lost, not 500, and %d as read, not 5", lost, read)
	}
}

// The gate keeps no more names than it may, whatever sb-dns says.
func TestNamesAreBounded(t *testing.T) {
	n := newNames(manifest.Network{Pool: netip.MustParsePrefix("10.0.0.0/8")})
	a := n.net.FirstHandle()
	enter := func(i int) error {
		name, err := rule.ParseName(fmt.Sprintf("x%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		err = n.enter(a, name)
		a = a.Next()
		return err
	}
	for i := range maxHandles {
		if err := enter(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter(maxHandles); err == nil || len(n.byAddr) != maxHandles {
		t.Errorf("one more: %v, %d are known", err, len(n.byAddr))
	}
}

// Pings that wait for their answer are bounded in number.
func TestPingSlots(t *testing.T) {
	fs := newFlows()
	for i := range maxPings {
		if why := fs.takeOne(&fs.pings, maxPings, reason.PingBudget); why != "" {
			t.Fatalf("ping %d: %s", i, why)
		}
	}
	if why := fs.takeOne(&fs.pings, maxPings, reason.PingBudget); why != reason.PingBudget {
		t.Errorf("one too many: %q", why)
	}
	fs.free(&fs.pings)
	if why := fs.takeOne(&fs.pings, maxPings, reason.PingBudget); why != "" {
		t.Errorf("after one has ended: %s", why)
	}
}

// A question that was answered, or was forgotten, leaves nothing.
func TestQuestionsLeaveNothing(t *testing.T) {
	s := start(t, "a.example")
	r := &resolver{queries: map[uint32]asked{}}
	r.queries[1] = asked{late: time.AfterFunc(time.Hour, func() {}), send: func([]byte) {}}
	late := r.queries[1].late
	if r.take(1) == nil || r.take(1) != nil {
		t.Error("who asked is not told once")
	}
	if late.Stop() || len(r.queries) != 0 {
		t.Error("a timer or a question is left")
	}
	s.handle("a.example") // the control: through the whole
}
