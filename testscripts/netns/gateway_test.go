package netns

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sb/testscripts/world"
)

// clockQuestion is a client's packet of NTP (RFC 4330).
func clockQuestion() []byte {
	q := make([]byte, 48)
	q[0] = 4<<3 | 3
	binary.BigEndian.PutUint64(q[40:], 0x0123456789abcdef)
	return q
}

// TestD19PortScan: of all TCP and UDP ports of the gateway those of DNS and of the
// clock answer; the other TCP ports are closed, all of them.
func TestD19PortScan(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	p := l.packets()
	open, closed := l.scanTCP(p, "198.18.0.1")
	if !slices.Equal(open, []uint16{53}) || closed != 65534 {
		t.Errorf("TCP: open are %v, and %d ports are closed", open, closed)
	}
	question := clockQuestion() // of which DNS makes nothing
	answered := map[uint16]bool{}
	take := func(f []byte) {
		if f[12] == 8 && f[13] == 0 && f[23] == 17 {
			answered[binary.BigEndian.Uint16(f[34:])] = true
		}
	}
	for port := range 65536 {
		data := question
		if port == 53 {
			data = dnsQuestion("allowed.example.org")
		}
		p.send(etherFrame(0x0800, ipPacket(17, "198.18.0.1", 64, udpDatagram(30000, uint16(port), data))))
		if port%1000 == 999 {
			p.taken(take)
		}
	}
	p.taken(take)
	for f := p.next(time.Second); f != nil; f = p.next(time.Second) { // DNS is a process away
		take(f)
	}
	if len(answered) != 2 || !answered[53] || !answered[123] {
		t.Errorf("UDP: answers came from %v", answered)
	}
	l.good("allowed.example.org")
	l.logsN(1, "allow tcp") // the control's
}

// scanTCP sends a SYN to every port, some at a time, and again to those that did
// not answer.
func (l *lab) scanTCP(p *packets, addr string) (open []uint16, closed int) {
	l.t.Helper()
	var left []uint16
	for port := 1; port < 65536; port++ {
		left = append(left, uint16(port))
	}
	for end := time.Now().Add(60 * time.Second); len(left) > 0 && time.Now().Before(end); {
		batch := left[:min(500, len(left))]
		waiting := map[uint16]bool{}
		for _, port := range batch {
			p.send(etherFrame(0x0800, ipPacket(6, addr, 64, synSegment(addr, 30001, port))))
			waiting[port] = true
		}
		for len(waiting) > 0 {
			f := p.next(300 * time.Millisecond)
			if f == nil {
				break
			}
			if f[12] != 8 || f[13] != 0 || f[23] != 6 || binary.BigEndian.Uint16(f[36:]) != 30001 {
				continue
			}
			port := binary.BigEndian.Uint16(f[34:])
			if !waiting[port] {
				continue
			}
			delete(waiting, port)
			if f[47]&4 == 0 {
				open = append(open, port)
			} else {
				closed++
			}
		}
		left = left[len(batch):]
		for port := range waiting {
			left = append(left, port)
		}
	}
	if len(left) > 0 {
		l.t.Errorf("%d ports do not answer at all", len(left))
	}
	return open, closed
}

// TestD19NoControl: nothing at the gateway takes orders.
func TestD19NoControl(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	for _, url := range []string{"198.18.0.1/services/forwarder/all", "198.18.0.1/services/forwarder/expose", "198.18.0.1:2375/containers/json", "198.18.0.1:8080/", "198.18.0.254/", "198.18.0.254:2375/version"} {
		began := time.Now()
		out, err := l.in("curl", "-sS", "--max-time", "5", "-d", `{"local":":9999","remote":"198.18.0.2:22"}`, "http://"+url)
		if err == nil || strings.Contains(out, "served") {
			t.Errorf("%s: %s", url, out)
		}
		if took := time.Since(began); took > 2*time.Second && !strings.Contains(url, "254") {
			t.Errorf("%s: it took %v", url, took)
		}
	}
	if c, err := net.DialTimeout("tcp", "127.0.0.1:9999", time.Second); err == nil {
		c.Close()
		t.Error("a port was opened on the host")
	}
	l.good("allowed.example.org")
}

// TestD19Clock: the gateway tells the time, and nothing to who does not ask.
func TestD19Clock(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{})
	b, err := l.asks("198.18.0.1:123", clockQuestion(), 5*time.Second)
	if err != nil || len(b) != 48 || b[0]&7 != 4 {
		t.Fatalf("% x, %v", b, err)
	}
	at := time.Unix(int64(binary.BigEndian.Uint32(b[40:]))-2208988800, 0)
	if off := time.Since(at).Abs(); off > 5*time.Second {
		t.Errorf("it is %v off", off)
	}
	for what, q := range map[string][]byte{"a server's packet": append([]byte{0x24}, make([]byte, 47)...), "control": append([]byte{0x26}, make([]byte, 47)...),
		"monlist": append([]byte{0x17, 0, 3, 0x2a}, make([]byte, 44)...), "a short one": {0x23}} {
		if b, err := l.asks("198.18.0.1:123", q, 200*time.Millisecond); err == nil {
			t.Errorf("%s is answered with % x", what, b)
		}
	}
}

// TestD20HostServices: what listens on the host, on its loopback and on its
// network, is reached by none of the names and addresses that usually lead there;
// a rule opens one port.
func TestD20HostServices(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 100)
	serve := func(addr string) int {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				reached <- ln.Addr().String()
				io.WriteString(c, "the host's own\n")
				c.Close()
			}
		}()
		return ln.Addr().(*net.TCPAddr).Port
	}
	inner, outer, opened := serve("127.0.0.1:0"), serve(world.HostAddr+":0"), serve("127.0.0.1:0")
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "loopback.example.org", "host.example.org", fmt.Sprintf("host.sb.internal:%d", opened)}})
	for _, port := range []int{inner, outer} {
		for _, addr := range []string{world.HostAddr, "198.18.0.1", "10.99.0.2", l.handle("host.sb.internal"), l.handle("loopback.example.org"), l.handle("host.example.org")} {
			l.refuses(fmt.Sprintf("%s:%d", addr, port))
		}
		for _, addr := range []string{"198.18.0.254", "127.0.0.1", "0.0.0.0"} {
			if c, err := l.dialFrom(0, fmt.Sprintf("%s:%d", addr, port)); err == nil {
				c.Close()
				t.Errorf("%s:%d is open", addr, port)
			}
		}
	}
	for _, name := range []string{"host.docker.internal", "gateway.docker.internal", "host.containers.internal", "host.lima.internal", "localhost"} {
		b, err := l.asks("198.18.0.1:53", dnsQuestion(name), 5*time.Second)
		// host.docker.internal is another name of host.sb.internal.
		if err != nil || b[3]&15 == 0 && name != "host.docker.internal" {
			t.Errorf("%s: % x, %v", name, b, err)
		}
	}
	select {
	case addr := <-reached:
		t.Errorf("%s was reached", addr)
	default:
	}
	c, err := l.dialFrom(0, fmt.Sprintf("%s:%d", l.handle("host.sb.internal"), opened))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, _ := io.ReadAll(c); string(b) != "the host's own\n" {
		t.Errorf("the opened port: %q", b)
	}
	l.logged(fmt.Sprintf("allow tcp host.sb.internal 127.0.0.1:%d allow-rule", opened))
}

// TestD9Literals: addresses of every special kind, from a real kernel: refused at
// once where the packet leaves the guest at all.
func TestD9Literals(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	for _, addr := range []string{"10.0.0.1", "10.99.0.1", "10.99.0.2", "100.64.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", world.Office,
		"198.18.99.99", "198.19.255.254", "198.51.100.1", "203.0.113.1", "1.1.1.1", "8.8.8.8", world.CDN, world.Other, world.Never, world.Nameserver, "239.1.2.3", "240.0.0.1", "255.255.255.254"} {
		a := netip.MustParseAddr(addr)
		if a.IsMulticast() || a.As4()[0] >= 240 {
			if c, err := l.dialFrom(0, addr+":80"); err == nil {
				c.Close()
				t.Errorf("%s is open", addr)
			}
			continue // the guest's kernel has no SYN for some of these
		}
		for _, port := range []string{"80", "443", "22"} {
			l.refuses(addr + ":" + port)
		}
	}
	l.good("allowed.example.org")
	l.logsN(1, "allow tcp") // the control's
}

// TestD3Pings: pings of every size come back with the guest's own bytes, from hosts
// that are allowed, one a second each; about others the gateway says that it does
// not let them through, at once.
func TestD3Pings(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"*.example.org"}, deny: []string{"denied.example.org"}})
	for i, size := range []string{"0", "8", "56", "1000", "1472"} {
		host := fmt.Sprintf("p%d.example.org", i)
		out, err := l.in("ping", "-c", "1", "-W", "5", "-s", size, "-p", "7365637265742e", host)
		if err != nil || !strings.Contains(out, " 1 received") || strings.Contains(out, "wrong data") {
			t.Errorf("%s bytes: %v: %s", size, err, out)
		}
		l.logged("close icmp " + host + " " + world.CDN + " done")
	}
	for _, line := range l.log() {
		if up := line.Word("up"); line.Gate == "icmp" && line.Verdict == "close" && up != "56" {
			t.Errorf("%s bytes went out: %s", up, line)
		}
	}
	if out, _ := l.in("ping", "-c", "5", "-i", "0.1", "-W", "1", "flood.example.org"); !strings.Contains(out, " 1 received") {
		t.Errorf("five in half a second: %s", out)
	}
	for _, to := range []string{world.Never, world.CDN, "198.18.0.9", "198.18.77.7", world.HostAddr} {
		began := time.Now()
		out, _ := l.in("ping", "-c", "1", "-W", "5", to)
		if !strings.Contains(out, " 0 received") || !strings.Contains(out, "From 198.18.0.1 icmp_seq=1 Packet filtered") {
			t.Errorf("%s: %s", to, out)
		}
		if took := time.Since(began); took > 2*quick {
			t.Errorf("%s: it took %v", to, took)
		}
	}
}

// TestD4Traceroute: with any number of hops to go, what answers is the place that
// was asked, and no router shows itself.
func TestD4Traceroute(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	h := l.handle("allowed.example.org")
	p := l.packets()
	seen := map[string]bool{}
	note := func(f []byte) {
		if f[12] != 8 || f[13] != 0 {
			return
		}
		kind := fmt.Sprintf("%s %d", net.IP(f[26:30]), f[23])
		if f[23] == 1 {
			kind += fmt.Sprintf(" type %d code %d", f[34], f[35])
		}
		seen[kind] = true
	}
	for ttl := byte(0); ttl < 12; ttl++ {
		p.send(etherFrame(0x0800, ipPacket(17, h, ttl, udpDatagram(33000, 33434+uint16(ttl), []byte("trace")))))
		p.send(etherFrame(0x0800, ipPacket(6, world.Never, ttl, synSegment(world.Never, 33001+uint16(ttl), 80))))
		p.send(etherFrame(0x0800, ipPacket(1, h, ttl, echoRequest(ttl))))
		p.taken(note)
	}
	for f := p.next(500 * time.Millisecond); f != nil; f = p.next(500 * time.Millisecond) {
		note(f)
	}
	want := map[string]bool{h + " 1 type 3 code 3": true, h + " 1 type 0 code 0": true, world.Never + " 6": true}
	for kind := range want {
		if !seen[kind] {
			t.Errorf("nothing of %s was seen", kind)
		}
	}
	for kind := range seen {
		if !want[kind] {
			t.Errorf("seen: %s", kind)
		}
	}
}

func echoRequest(seq byte) []byte {
	b := append([]byte{8, 0, 0, 0, 0, 77, 0, seq}, "some bytes"...)
	binary.BigEndian.PutUint16(b[2:], ^onesSum(b, 0))
	return b
}
