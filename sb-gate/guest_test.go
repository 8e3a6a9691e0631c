//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"sb/lib/manifest"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// queued is how many frames the guest holds that its wire does not take yet. It
// must not lose any: its stack is slow to recover from that.
const queued = 1 << 16

// guest is a machine on the gate's wire: a network stack of its own.
type guest struct {
	t     *testing.T
	net   manifest.Network
	wire  *os.File
	link  *channel.Endpoint
	stack *stack.Stack
	done  sync.WaitGroup
	stop  func()

	mu     sync.Mutex
	deaf   bool                    // it does not read its wire
	reads  *sync.Cond              // deaf was changed
	tapped chan<- []byte           // gets every frame that comes
	drop   func(frame []byte) bool // says which of them the stack does not get
}

func newGuest(t *testing.T, n manifest.Network, wire *os.File) *guest {
	g := &guest{t: t, net: n, wire: wire, link: channel.New(queued, uint32(n.MTU), tcpip.LinkAddress(manifest.GuestMAC))}
	g.reads = sync.NewCond(&g.mu)
	g.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := g.stack.CreateNIC(1, ethernet.New(g.link)); err != nil {
		t.Fatal(err)
	}
	at := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(n.Guest().As4()), PrefixLen: 24}
	if err := g.stack.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: at}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	g.stack.SetRouteTable([]tcpip.Route{
		{Destination: at.Subnet(), NIC: 1},
		{Destination: header.IPv4EmptySubnet, Gateway: tcpip.AddrFrom4(n.Gateway().As4()), NIC: 1},
	})
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.done.Go(func() { g.transmit(ctx) })
	g.done.Go(g.receive)
	return g
}

// transmit takes the stack's frames to the wire.
func (g *guest) transmit(ctx context.Context) {
	for {
		pkt := g.link.ReadContext(ctx)
		if pkt == nil {
			return
		}
		v := pkt.ToView()
		g.wire.Write(v.AsSlice())
		v.Release()
		pkt.DecRef()
	}
}

// receive takes the wire's frames to the stack.
func (g *guest) receive() {
	buf := make([]byte, g.net.MTU+header.EthernetMinimumSize)
	for {
		g.mu.Lock()
		for g.deaf {
			g.reads.Wait()
		}
		g.mu.Unlock()
		n, err := g.wire.Read(buf)
		if err != nil {
			if errors.Is(err, unix.ECONNRESET) {
				continue // the gate's end was closed
			}
			return
		}
		g.mu.Lock()
		tap, drop := g.tapped, g.drop
		g.mu.Unlock()
		if tap != nil {
			tap <- append([]byte(nil), buf[:n]...)
		}
		if drop != nil && drop(buf[:n]) {
			continue
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(buf[:n])})
		g.link.InjectInbound(0, pkt) // the link's own header says which protocol it is
		pkt.DecRef()
	}
}

// setDeaf stops or resumes reading the wire. The frame that is being waited for
// is still read.
func (g *guest) setDeaf(deaf bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deaf = deaf
	g.reads.Broadcast()
}

// dropTCP keeps the answers to some of the guest's ports from its stack. It
// returns how many of the ports have got one.
func (g *guest) dropTCP(from, to uint16) func() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	var mu sync.Mutex
	ports := map[uint16]bool{}
	g.drop = func(f []byte) bool {
		const ipAt, portAt = header.EthernetMinimumSize, header.EthernetMinimumSize + header.IPv4MinimumSize + 2
		if len(f) < portAt+2 || f[12] != 8 || f[13] != 0 || f[ipAt+9] != 6 {
			return false
		}
		port := uint16(f[portAt])<<8 | uint16(f[portAt+1])
		if port < from || port > to {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		ports[port] = true
		return true
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ports)
	}
}

// tap has every frame that comes from the gate go to the channel too.
func (g *guest) tap() <-chan []byte {
	c := make(chan []byte, 4096)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tapped = c
	return c
}

func (g *guest) close() {
	g.setDeaf(false)
	g.stop()
	g.wire.SetDeadline(time.Unix(1, 0))
	g.done.Wait()
	g.wire.Close()
	g.stack.Close()
	g.link.Close()
	g.stack.Wait()
}

func full(at netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(at.Addr().As4()), Port: at.Port()}
}

// dial opens a connection to an address, as the guest sees it.
func (g *guest) dial(at netip.AddrPort) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.stack, full(at), ipv4.ProtocolNumber)
}

// datagrams opens a UDP socket that is connected to an address.
func (g *guest) datagrams(at netip.AddrPort) *gonet.UDPConn {
	to := full(at)
	c, err := gonet.DialUDP(g.stack, nil, &to, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// question is a query for one type of record.
func question(id uint16, name string, typ dnsmessage.Type) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	b.StartQuestions()
	n, err := dnsmessage.NewName(name + ".")
	if err == nil {
		err = b.Question(dnsmessage.Question{Name: n, Type: typ, Class: dnsmessage.ClassINET})
	}
	msg, ferr := b.Finish()
	if err != nil || ferr != nil {
		panic("a test asks for a name that is none: " + name)
	}
	return msg
}

// lookup asks the gateway for a name's address over UDP; the zero Addr if the
// answer has none, which has the code too.
func (g *guest) lookup(name string) (netip.Addr, dnsmessage.RCode, error) {
	c := g.datagrams(netip.AddrPortFrom(g.net.Gateway(), portDNS))
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(question(uint16(time.Now().UnixNano()), name, dnsmessage.TypeA)); err != nil {
		return netip.Addr{}, 0, err
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return netip.Addr{}, 0, err
	}
	return answered(buf[:n])
}

// answered reads the first address of an answer.
func answered(msg []byte) (netip.Addr, dnsmessage.RCode, error) {
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil {
		return netip.Addr{}, 0, err
	}
	for _, r := range m.Answers {
		if a, ok := r.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(a.A), m.RCode, nil
		}
	}
	return netip.Addr{}, m.RCode, nil
}

var _ net.Conn = (*gonet.TCPConn)(nil)

// remoteOf is where an endpoint of the stack leads.
func remoteOf(e stack.TransportEndpoint) netip.AddrPort {
	ep, ok := e.(tcpip.Endpoint)
	if !ok {
		return netip.AddrPort{}
	}
	to, err := ep.GetRemoteAddress()
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addrOf(to.Addr), to.Port)
}

// stalled says whether the wire to the guest takes no more.
func (g *guest) stalled() bool {
	raw, err := g.wire.SyscallConn()
	if err != nil {
		return false
	}
	before, after := 0, 0
	count := func(n *int) {
		raw.Control(func(fd uintptr) { *n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	count(&before)
	time.Sleep(50 * time.Millisecond)
	count(&after)
	return before > 0 && before == after
}
