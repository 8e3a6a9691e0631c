package main

import (
	"net"
	"sync"
	"time"

	"sb/lib/reason"
	"sb/lib/wire"
)

// counted is a conversation with a nameserver, reported when it ends: the audit
// log lists it, since it left the host.
type counted struct {
	net.Conn
	report func(wire.Exchange)
	x      wire.Exchange
	began  time.Time
	once   sync.Once
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.x.Down += int64(n)
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.x.Up += int64(n)
	return n, err
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.x.Reason = exchanged(c.x.Down > 0)
		c.x.Millis = time.Since(c.began).Milliseconds()
		c.report(c.x)
	})
	return c.Conn.Close()
}

// exchanged is how a conversation ended.
func exchanged(answered bool) reason.Code {
	if answered {
		return reason.Done
	}
	return reason.NoAnswer
}

// packets is a counted conversation over UDP.
type packets struct {
	*counted
	p net.PacketConn
}

func (p packets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := p.p.ReadFrom(b)
	p.x.Down += int64(n)
	return n, from, err
}

func (p packets) WriteTo(b []byte, to net.Addr) (int, error) {
	n, err := p.p.WriteTo(b, to)
	p.x.Up += int64(n)
	return n, err
}
