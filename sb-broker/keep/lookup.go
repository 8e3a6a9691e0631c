package keep

import (
	"context"
	"net"
	"runtime"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
)

// resolver is the host's, whose every conversation about a name is in the log. On
// macOS the system itself asks, and only that it was asked can be said.
func (e endpoint) resolver(name string) *net.Resolver {
	return &net.Resolver{PreferGo: runtime.GOOS == "linux", Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		line := audit.Line{Verdict: audit.Allow, Gate: audit.Look, Name: name, Address: address, Reason: reason.NoAnswer}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			line.Words = []audit.Word{audit.Int("up", 0), audit.Int("down", 0), audit.Int("ms", 0), {Key: "by", Value: "sb"}}
			e.tell(line)
			return nil, err
		}
		c := &counted{Conn: conn, e: e, line: line, began: time.Now()}
		if p, ok := conn.(net.PacketConn); ok {
			return packets{c, p}, nil // the resolver tells UDP by this
		}
		return c, nil
	}}
}

// packets is a counted conversation over UDP.
type packets struct {
	*counted
	p net.PacketConn
}

func (p packets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := p.p.ReadFrom(b)
	p.down.Add(int64(n))
	return n, from, err
}

func (p packets) WriteTo(b []byte, to net.Addr) (int, error) {
	n, err := p.p.WriteTo(b, to)
	p.up.Add(int64(n))
	return n, err
}
