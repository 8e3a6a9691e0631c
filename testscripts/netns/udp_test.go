package netns

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/testscripts/world"
)

// quicInitial is a client's first datagram of QUIC, as far as anybody sees who
// does not decrypt it (RFC 9000, sections 14.1 and 17.2.2).
func quicInitial() []byte {
	b := append([]byte{0xc3, 0, 0, 0, 1, 8}, "destconn"...)
	b = append(append(b, 8), "srcconn."...)
	b = append(b, 0, 0x44, 0x96) // no token; the length of the rest
	for len(b) < 1200 {
		b = append(b, byte(rand.Uint32()))
	}
	return b
}

// stunBinding asks a STUN server for an address (RFC 8489).
func stunBinding() []byte {
	return append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, "transaction!"...)
}

// unreachable: a datagram is refused, at once.
func (l *lab) unreachable(addr string, msg []byte) {
	l.t.Helper()
	began := time.Now()
	b, err := l.asks(addr, msg, 5*time.Second)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		l.t.Errorf("a datagram to %s: %d bytes, %v, not refused", addr, len(b), err)
	}
	if took := time.Since(began); took > quick {
		l.t.Errorf("a datagram to %s: refused after %v", addr, took)
	}
}

// TestD1QUIC: QUIC is refused at once, and its client falls back to TCP.
func TestD1QUIC(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "udp.example.org:7777/udp", world.Other + ":7777/udp"}})
	h, u := l.handle("allowed.example.org"), l.handle("udp.example.org")
	const times = 200 // a page has many connections
	for range times {
		l.unreachable(h+":443", quicInitial())
	}
	for _, addr := range []string{u + ":443", world.Other + ":443", world.CDN + ":443", "198.18.77.7:443"} {
		l.unreachable(addr, quicInitial())
	}
	l.logsN(times, "deny udp allowed.example.org "+h+":443 quic-refused")
	l.logsN(1, "deny udp udp.example.org "+u+":443 quic-refused")
	began := time.Now()
	out, err := l.in("curl", "-sS", "--max-time", "10", "--cacert", world.Dir()+"/ca.pem", "https://allowed.example.org/fallback")
	if err != nil || !strings.Contains(out, "served GET /fallback") {
		t.Errorf("over TCP: %v: %s", err, out)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("over TCP: it took %v", took)
	}
	if b, err := l.asks(u+":7777", quicInitial(), 5*time.Second); err != nil || len(b) != 1200 {
		t.Errorf("the control, under a rule for another port: %d bytes, %v", len(b), err)
	}
}

// TestD2Datagrams: the usual protocols over UDP are refused at once, to allowed
// hosts and to others.
func TestD2Datagrams(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "udp.example.org:7777/udp"}})
	h, u := l.handle("allowed.example.org"), l.handle("udp.example.org")
	const ours = "datagrams.example.org" // no other test, nor a server for one, asks for it
	before := seen(t).Queries[ours]
	refused := int64(0)
	for _, c := range []struct {
		what string
		port int
		msg  []byte
	}{
		{"DNS", 53, dnsQuestion(ours)},
		{"NTP", 123, clockQuestion()},
		{"SNMP", 161, []byte("0&\x02\x01\x01\x04\x06public")},
		{"IKE", 500, make([]byte, 28)},
		{"STUN", 3478, stunBinding()},
		{"mDNS", 5353, dnsQuestion(ours)},
		{"an echo", 7777, []byte("hello")},
		{"STUN of a browser", 19302, stunBinding()},
		{"WireGuard", 51820, append([]byte{1, 0, 0, 0}, make([]byte, 144)...)},
		{"a port above all", 65535, []byte("x")},
	} {
		for _, to := range []string{h, world.CDN, world.Never, world.Nameserver, "198.18.77.7", world.HostAddr} {
			l.unreachable(fmt.Sprintf("%s:%d", to, c.port), c.msg)
			refused++
		}
		if c.port != 7777 {
			l.unreachable(fmt.Sprintf("%s:%d", u, c.port), c.msg)
			refused++
		}
	}
	l.logsN(refused, "deny udp")
	if b, err := l.asks(u+":7777", stunBinding(), 5*time.Second); err != nil || len(b) != 20 {
		t.Errorf("the control, under a rule: % x, %v", b, err)
	}
	l.logsN(1, "allow udp") // the control's
	if n := seen(t).Queries[ours] - before; n != 0 {
		t.Errorf("%d questions came to the nameserver past the gateway", n)
	}
	outside, err := net.Dial("udp", world.Nameserver+":53")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	outside.SetDeadline(time.Now().Add(10 * time.Second))
	outside.Write(dnsQuestion(ours))
	if _, err := outside.Read(make([]byte, 512)); err != nil || seen(t).Queries[ours] != before+1 {
		t.Errorf("the control, asked outside, was not seen: %v", err)
	}
}
