package netns

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"sb/testscripts/world"

	"golang.org/x/sys/unix"
)

// wire sends a frame past the guest's kernel, which would not send each of them.
func (l *lab) wire(frame []byte) {
	l.t.Helper()
	for {
		_, err := unix.SendmsgN(int(l.frames[1].Fd()), frame, nil, nil, 0) // also one of no bytes
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOBUFS {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		if err != nil && err != unix.EMSGSIZE { // longer than a socket takes is as good as dropped
			l.t.Fatal(err)
		}
		return
	}
}

// hushed has the guest's kernel take what is answered to the golden frames.
func (l *lab) hushed() {
	var c net.PacketConn
	var err error
	l.inside(func() { c, err = net.ListenPacket("udp", "198.18.0.2:40000") })
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
}

// TestFrameVectors: an empty frame and each golden one on the wire of the built gate is
// dropped for its reason, once, and a good flow completes after each kind of them.
func TestFrameVectors(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	l.good("allowed.example.org")
	l.hushed()
	l.wire(nil)
	want, before := map[string]int64{"frame-malformed": 1}, ""
	for _, f := range goldenFrames(t) {
		if f.id != before && before != "" {
			l.good("allowed.example.org")
		}
		before = f.id
		l.wire(f.bytes)
		if !strings.HasPrefix(f.result, "pass ") {
			want[f.result]++
		}
	}
	l.good("allowed.example.org")
	for why, n := range want {
		l.logsN(n, "deny frame - - "+why)
	}
	if len(want) != 8 {
		t.Errorf("%d reasons, there are 8", len(want))
	}
	seen, err := world.Look()
	if err != nil {
		t.Fatal(err)
	}
	if n := seen.Accepts[world.Never+":443"]; n != 0 {
		t.Errorf("a frame came to a server, %d times", n)
	}
}

// TestD7LinkAddresses: a guest that makes up link addresses has the gate remember
// none of them.
func TestD7LinkAddresses(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	l.good("allowed.example.org")
	r := rand.New(rand.NewPCG(7, 7))
	frame := etherFrame(0x0800, ipPacket(6, "198.18.1.0", 64, synSegment("198.18.1.0", 1234, 80)))
	flood := func(n int) {
		for range n {
			binary.BigEndian.PutUint32(frame[6:], r.Uint32()&0xfeffffff|0x02000000)
			binary.BigEndian.PutUint16(frame[10:], uint16(r.Uint32()))
			l.wire(frame)
		}
	}
	flood(1000)
	before := resident(t, l.gate.Process.Pid)
	const n = 50_000
	flood(n)
	l.good("allowed.example.org")
	l.logsN(n+1000, "deny frame - - frame-source")
	if grown := resident(t, l.gate.Process.Pid) - before; grown > 8<<20 {
		t.Errorf("the gate grew by %d bytes", grown)
	}
}

// arpFrame asks (op 1) or claims (op 2), to everybody.
func arpFrame(op byte, sender, target string) []byte {
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, op}, guestMAC...)
	b = append(append(b, net.ParseIP(sender).To4()...), 0, 0, 0, 0, 0, 0)
	f := etherFrame(0x0806, append(b, net.ParseIP(target).To4()...))
	copy(f, "\xff\xff\xff\xff\xff\xff")
	return f
}

// arpReply waits for the next answer of somebody's; other frames that come before
// it are handed to each.
func (p *packets) arpReply(wait time.Duration, each func(f []byte)) []byte {
	for end := time.Now().Add(wait); ; {
		f := p.next(time.Until(end))
		if f == nil || f[12] == 8 && f[13] == 6 && f[21] == 2 {
			return f
		}
		each(f)
	}
}

func ignore([]byte) {}

// taken waits until the gate has taken what was sent: the guest's own device
// drops what is sent faster than it goes out. What comes meanwhile is handed to
// each.
func (p *packets) taken(each func(f []byte)) {
	p.t.Helper()
	p.send(arpFrame(1, "198.18.0.2", "198.18.0.1"))
	if p.arpReply(10*time.Second, each) == nil {
		p.t.Fatal("the gateway does not answer any more")
	}
}

// TestD13ARP: the guest claims the gateway's address, all the time; the gate goes
// on knowing who is who, and answers for its own address alone.
func TestD13ARP(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	p := l.packets()
	answers := func(f []byte) bool {
		p.send(f)
		got := p.arpReply(300*time.Millisecond, ignore)
		if got != nil && (string(got[22:28]) != string(gatewayMAC) || net.IP(got[28:32]).String() != "198.18.0.1") {
			t.Errorf("an answer of another: % x", got)
		}
		return got != nil
	}
	if !answers(arpFrame(1, "198.18.0.2", "198.18.0.1")) {
		t.Fatal("the gateway does not answer for its own address")
	}
	for _, target := range []string{"198.18.0.9", "198.18.1.0", "169.254.169.254", "198.18.0.2", world.CDN} {
		if answers(arpFrame(1, "198.18.0.2", target)) {
			t.Errorf("somebody answers for %s", target)
		}
	}
	for range 500 {
		p.send(arpFrame(1, "198.18.0.1", "198.18.0.1"))
		p.send(arpFrame(2, "198.18.0.1", "198.18.0.1"))
		p.send(arpFrame(2, "198.18.1.0", "198.18.0.1"))
	}
	l.good("allowed.example.org")
	l.logsN(500, "deny frame - - frame-source")
	l.logsN(1000, "deny frame - - frame-malformed")
}

// TestD14DHCP: three hundred machines ask for an address, and nobody answers;
// nor does the guest become anybody's server.
func TestD14DHCP(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	p := l.packets()
	const n = 300
	for i := range n {
		msg := make([]byte, 240)
		copy(msg, []byte{1, 1, 6, 0, 1, 2, 3, 4})
		copy(msg[28:], []byte{2, 0, 0, 0, byte(i >> 8), byte(i)})
		copy(msg[236:], "\x63\x82\x53\x63")
		msg = append(msg, 53, 1, 1, 255)
		f := etherFrame(0x0800, ipPacket(17, "255.255.255.255", 64, udpDatagram(68, 67, msg)))
		copy(f, "\xff\xff\xff\xff\xff\xff")
		if i%2 == 0 {
			copy(f[26:30], "\x00\x00\x00\x00")
		}
		p.send(f)
	}
	l.logsN(n/2, "deny frame - - frame-source")
	l.logsN(n/2, "deny frame - - frame-multicast")
	for f := p.next(100 * time.Millisecond); f != nil; f = p.next(100 * time.Millisecond) {
		if len(f) > 36 && f[23] == 17 && f[35] == 67 {
			t.Errorf("an answer: % x", f)
		}
	}
	l.good("allowed.example.org")
}

// TestD15IPv6: a real kernel with IPv6 on looks for neighbours and routers, takes
// an address and dials, and nobody is there.
func TestD15IPv6(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	p := l.packets()
	out, err := l.in("sh", "-c", `
echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6
ip -6 addr add 2001:db8::2/64 dev eth0 nodad
ip -6 route add default via 2001:db8::1 dev eth0
ping -6 -c 2 -i 0.2 -W 1 2001:db8::1
ping -6 -c 1 -W 1 ff02::1%eth0
curl -g -sS --max-time 2 'http://[2606:4700::1111]/'
true`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(out, "0 received") || strings.Contains(out, "served") {
		t.Errorf("something answers: %s", out)
	}
	l.logged("deny frame - - frame-ethertype")
	for f := p.next(50 * time.Millisecond); f != nil; f = p.next(50 * time.Millisecond) {
		if f[12] == 0x86 && f[13] == 0xdd {
			t.Errorf("an IPv6 frame came: % x", f)
		}
	}
	l.good("allowed.example.org")
}

// TestD16D18Raw: root in the guest sends every EtherType and every protocol from a
// packet socket. Nothing answers but what is IPv4 or ARP, and of IPv4 nothing but
// three protocols.
func TestD16D18Raw(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	l.good("allowed.example.org")
	p := l.packets()
	packet := ipPacket(6, "198.18.99.99", 64, synSegment("198.18.99.99", 1234, 80))
	dropped := 0
	check := func(f []byte) {
		if !(f[12] == 8 && (f[13] == 6 || f[13] == 0 && (f[23] == 1 || f[23] == 6 || f[23] == 17))) {
			t.Errorf("a frame of another kind came: % x", f[:40])
		}
	}
	for typ := range 1 << 16 {
		p.send(etherFrame(uint16(typ), packet))
		if typ != 0x0800 && typ != 0x0806 {
			dropped++
		}
		if typ%1000 == 999 {
			p.taken(check)
		}
	}
	for proto := range 256 {
		p.send(etherFrame(0x0800, ipPacket(byte(proto), "198.18.99.99", 64, packet)))
	}
	p.taken(check)
	for f := p.next(200 * time.Millisecond); f != nil; f = p.next(50 * time.Millisecond) {
		check(f)
	}
	l.good("allowed.example.org")
	l.logsN(int64(dropped), "deny frame - - frame-ethertype")
	l.logsN(253, "deny frame - - frame-protocol")
}

// TestD17Multicast: what real kernels send to everybody goes nowhere.
func TestD17Multicast(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	const each = 5
	places := []string{"224.0.0.251:5353", "239.255.255.250:1900", "224.0.0.252:5355", "224.0.0.1:9"}
	for _, to := range places {
		for range each {
			if _, err := l.asks(to, []byte("is anybody there?"), time.Millisecond); err == nil {
				t.Errorf("%s answers", to)
			}
		}
	}
	l.logsN(int64(each*len(places)), "deny frame - - frame-multicast")
	if out, _ := l.in("ping", "-b", "-c", "1", "-W", "1", "255.255.255.255"); strings.Contains(out, " 1 received") {
		t.Errorf("somebody answers to broadcast: %s", out)
	}
	l.good("allowed.example.org")
}

// TestD11Fragments: a packet that the guest's kernel cuts does not pass; one that
// it need not cut does.
func TestD11Fragments(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "udp.example.org:7777/udp"}})
	if out, _ := l.in("ping", "-c", "1", "-W", "5", "-s", "1472", "198.18.0.1"); !strings.Contains(out, " 1 received") {
		t.Errorf("a whole ping: %s", out)
	}
	if out, _ := l.in("ping", "-M", "dont", "-c", "1", "-W", "1", "-s", "3000", "198.18.0.1"); !strings.Contains(out, " 0 received") {
		t.Errorf("a ping in fragments: %s", out)
	}
	l.logsN(3, "deny frame - - frame-fragment")
	to := l.handle("udp.example.org") + ":7777"
	if b, err := l.asks(to, make([]byte, 1400), 5*time.Second); err != nil || len(b) != 1400 {
		t.Errorf("a whole datagram: %d bytes, %v", len(b), err)
	}
	if b, err := l.asks(to, make([]byte, 2000), 300*time.Millisecond); !os.IsTimeout(err) {
		t.Errorf("a datagram in fragments: %d bytes, %v", len(b), err)
	}
	l.logsN(5, "deny frame - - frame-fragment")
}

// TestD8Spoofed: the guest's kernel takes other addresses and speaks from them.
func TestD8Spoofed(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org", world.Other + ":80"}})
	if got := l.says(world.Other+":80", "GET / HTTP/1.1\r\nHost: "+world.Other+"\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "served") {
		t.Errorf("from its own address: %q", got)
	}
	for _, from := range []string{"45.67.0.99", "198.18.0.9", "198.18.0.200", "10.99.0.1", "8.8.4.4"} {
		out, _ := l.in("sh", "-c", "ip addr add "+from+"/32 dev lo; curl -sS --interface "+from+" --max-time 0.5 http://"+world.Other+"/")
		if strings.Contains(out, "served") {
			t.Errorf("from %s: %s", from, out)
		}
	}
	l.logged("deny frame - - frame-source")
	l.logsN(1, "allow tcp - "+world.Other+":80")
	l.good("allowed.example.org")
}
