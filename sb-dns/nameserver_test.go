//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// nameserver is one on loopback that a test tells what to answer. It counts what
// reaches it and what it sends, on each conversation.
type nameserver struct {
	udp    net.PacketConn
	tcp    net.Listener
	answer func(ns *nameserver, q asked)
	done   sync.WaitGroup

	mu       sync.Mutex
	asked    map[string]int // by name and type
	up, down int64
	talks    map[string]bool // by the asker's address
}

// asked is one question and how to answer it.
type asked struct {
	id    uint16
	q     dnsmessage.Question
	tcp   bool
	reply func([]byte)
}

func newNameserver(t *testing.T, answer func(ns *nameserver, q asked)) *nameserver {
	t.Helper()
	ns := &nameserver{answer: answer, asked: map[string]int{}, talks: map[string]bool{}}
	var err error
	for range 20 { // a port that is free for the one may be taken for the other
		if ns.udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			break
		}
		if ns.tcp, err = net.Listen("tcp", ns.udp.LocalAddr().String()); err == nil {
			break
		}
		ns.udp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	ns.done.Go(ns.serveUDP)
	ns.done.Go(ns.serveTCP)
	t.Cleanup(func() { ns.udp.Close(); ns.tcp.Close(); ns.done.Wait() })
	return ns
}

// dial takes the place of the way to the host's own nameservers.
func (ns *nameserver) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, ns.udp.LocalAddr().String())
}

func (ns *nameserver) serveUDP() {
	buf := make([]byte, 65535)
	for {
		n, from, err := ns.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		ns.take(append([]byte(nil), buf[:n]...), n, "udp "+from.String(), func(b []byte) {
			ns.count(0, len(b))
			ns.udp.WriteTo(b, from)
		})
	}
}

func (ns *nameserver) serveTCP() {
	for {
		c, err := ns.tcp.Accept()
		if err != nil {
			return
		}
		ns.done.Go(func() {
			defer c.Close()
			for {
				var head [2]byte
				if _, err := io.ReadFull(c, head[:]); err != nil {
					return
				}
				msg := make([]byte, binary.BigEndian.Uint16(head[:]))
				if _, err := io.ReadFull(c, msg); err != nil {
					return
				}
				ns.take(msg, 2+len(msg), "tcp "+c.RemoteAddr().String(), func(b []byte) {
					ns.count(0, 2+len(b))
					c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
				})
			}
		})
	}
}

func (ns *nameserver) take(msg []byte, size int, talk string, reply func([]byte)) {
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil || len(m.Questions) != 1 {
		return
	}
	ns.mu.Lock()
	ns.asked[m.Questions[0].Name.String()+" "+typeName(m.Questions[0].Type)]++
	ns.talks[talk] = true
	answer := ns.answer
	ns.mu.Unlock()
	ns.count(size, 0)
	answer(ns, asked{m.ID, m.Questions[0], talk[:3] == "tcp", reply})
}

func (ns *nameserver) count(up, down int) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.up += int64(up)
	ns.down += int64(down)
}

// become changes what it answers.
func (ns *nameserver) become(answer func(ns *nameserver, q asked)) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.answer = answer
}

// total is how many questions were asked.
func (ns *nameserver) total() (n int) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for _, k := range ns.asked {
		n += k
	}
	return n
}

// msg is an answer to q.
func (q asked) msg(code dnsmessage.RCode, cut bool, bodies ...dnsmessage.ResourceBody) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: q.id, Response: true, RecursionAvailable: true, RCode: code, Truncated: cut}, Questions: []dnsmessage.Question{q.q}}
	name := q.q.Name
	for _, b := range bodies {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 1}, Body: b}
		if c, ok := b.(*dnsmessage.CNAMEResource); ok {
			name = c.CNAME // what follows is of that name
		}
		m.Answers = append(m.Answers, r)
	}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func a4(n byte) *dnsmessage.AResource { return &dnsmessage.AResource{A: [4]byte{192, 0, 2, n}} }

func a6(n byte) *dnsmessage.AAAAResource {
	return &dnsmessage.AAAAResource{AAAA: [16]byte{0x20, 1, 0xd, 0xb8, 15: n}}
}

// reports collects what an upstream says it sent.
type reports struct {
	mu  sync.Mutex
	all []wire.Exchange
}

func (r *reports) add(x wire.Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, x)
}

// sum is the bytes of all of them, and their number.
func (r *reports) sum() (up, down int64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.all {
		up, down = up+x.Up, down+x.Down
	}
	return up, down, len(r.all)
}

// agrees holds what was reported to what the nameserver saw: each conversation,
// each byte. left is what it sent that nobody read.
func (r *reports) agrees(t *testing.T, ns *nameserver, left int64) {
	t.Helper()
	up, down, n := r.sum()
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if up != ns.up || down != ns.down-left || n != len(ns.talks) {
		t.Errorf("reported: %d conversations, %d bytes up, %d down; at the nameserver: %d, %d, %d", n, up, down, len(ns.talks), ns.up, ns.down)
	}
}
