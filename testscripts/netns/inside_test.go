package netns

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// quick is how long a refusal may take: nobody shall wait for one.
const quick = time.Second

// inside runs fn on a thread that is in the guest's network meanwhile. What it
// opens stays there.
func (l *lab) inside(fn func()) {
	l.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		l.t.Fatal(err)
	}
	defer own.Close()
	guests, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", l.tap.Process.Pid))
	if err != nil {
		l.t.Fatal(err)
	}
	defer guests.Close()
	if err := unix.Setns(int(guests.Fd()), unix.CLONE_NEWNET); err != nil {
		l.t.Fatal(err)
	}
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // this thread would go on in the wrong network
		}
	}()
	fn()
}

// dialFrom opens a connection of the guest's, from a port if it is not 0.
func (l *lab) dialFrom(port int, addr string) (c net.Conn, err error) {
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return err
	}}
	if port != 0 {
		d.LocalAddr = &net.TCPAddr{Port: port}
	}
	l.inside(func() { c, err = d.DialContext(context.Background(), "tcp", addr) })
	if err == nil {
		c.SetDeadline(time.Now().Add(15 * time.Second))
	}
	return c, err
}

// refuses: a dial ends in a reset, at once.
func (l *lab) refuses(addr string) {
	l.t.Helper()
	began := time.Now()
	c, err := l.dialFrom(0, addr)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		l.t.Errorf("dial %s: %v, not refused", addr, err)
	}
	if took := time.Since(began); took > quick {
		l.t.Errorf("dial %s: refused after %v", addr, took)
	}
}

// says sends a text to an address, ends, and returns what came back.
func (l *lab) says(addr, text string) string {
	l.t.Helper()
	c, err := l.dialFrom(0, addr)
	if err != nil {
		l.t.Errorf("dial %s: %v", addr, err)
		return ""
	}
	defer c.Close()
	io.WriteString(c, text)
	c.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(c)
	return string(b)
}

// good is the control: a request to an allowed name is served, at once.
func (l *lab) good(name string) {
	l.t.Helper()
	began := time.Now()
	got := l.says(l.handle(name)+":80", "GET /good HTTP/1.1\r\nHost: "+name+"\r\nConnection: close\r\n\r\n")
	if !strings.Contains(got, "served GET /good host="+name) {
		l.t.Errorf("the control: %q", got)
	}
	if took := time.Since(began); took > 5*time.Second {
		l.t.Errorf("the control took %v", took)
	}
}

// asks sends a datagram of the guest's and returns the answer, or the error that
// came back for it.
func (l *lab) asks(addr string, msg []byte, wait time.Duration) ([]byte, error) {
	l.t.Helper()
	var c net.Conn
	var err error
	l.inside(func() { c, err = net.Dial("udp", addr) })
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	c.SetReadDeadline(time.Now().Add(wait))
	n, err := c.Read(buf)
	return buf[:n], err
}

// dnsQuestion asks for the address of a name.
func dnsQuestion(name string) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 99, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// handle is the address of an allowed name.
func (l *lab) handle(name string) string {
	l.t.Helper()
	b, err := l.asks("198.18.0.1:53", dnsQuestion(name), 10*time.Second)
	var m dnsmessage.Message
	if err != nil || m.Unpack(b) != nil || len(m.Answers) == 0 {
		l.t.Fatalf("look up %s: %v, %v", name, m.RCode, err)
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A).String()
}

// logs is how many decisions of the log are like a pattern: verdict, gate, name,
// address and reason, of which "*" is any.
func (l *lab) logs(pattern string) (n int64) {
	want := strings.Fields(pattern)
	for _, line := range l.log() {
		have := strings.Fields(line.String())[1:]
		same := true
		for i, w := range want {
			same = same && i < len(have) && (w == "*" || w == have[i])
		}
		if same {
			n += line.Count()
		}
	}
	return n
}

// logsN waits until exactly n decisions of the log are like a pattern.
func (l *lab) logsN(n int64, pattern string) {
	l.t.Helper()
	got := int64(-1)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = l.logs(pattern); got == n {
			return
		}
		if got > n {
			break
		}
	}
	l.t.Errorf("%d of the log are %q, not %d:\n%s", got, pattern, n, l.tail())
}

// logged waits until the log has a line like a pattern.
func (l *lab) logged(pattern string) {
	l.t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if l.logs(pattern) > 0 {
			return
		}
	}
	l.t.Errorf("the log has no %q:\n%s", pattern, l.tail())
}

func (l *lab) tail() string {
	var b strings.Builder
	lines := l.log()
	for _, line := range lines[max(0, len(lines)-40):] {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// packets is an AF_PACKET socket on the guest's device.
type packets struct {
	t  testing.TB
	fd int
}

func (l *lab) packets() *packets {
	l.t.Helper()
	p := &packets{t: l.t}
	l.inside(func() {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			l.t.Fatal(err)
		}
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			l.t.Fatal(err)
		}
		if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}); err != nil {
			l.t.Fatal(err)
		}
	})
	unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	l.t.Cleanup(func() { unix.Close(p.fd) })
	return p
}

func (p *packets) send(frame []byte) {
	p.t.Helper()
	for {
		_, err := unix.Write(p.fd, frame)
		if err == unix.EINTR || err == unix.ENOBUFS || err == unix.EAGAIN {
			runtime.Gosched()
			continue
		}
		if err != nil {
			p.t.Fatalf("send a frame of %d bytes: %v", len(frame), err)
		}
		return
	}
}

// next is the next frame that came from the gate; nil if none came in time.
func (p *packets) next(wait time.Duration) []byte {
	buf := make([]byte, 2048)
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(left.Milliseconds())+1); n == 0 || err != nil {
			continue
		}
		n, from, err := unix.Recvfrom(p.fd, buf, 0)
		if err != nil {
			continue
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype != unix.PACKET_OUTGOING {
			return buf[:n]
		}
	}
}

// goldenFrame is a line of the gate's golden frames.
type goldenFrame struct {
	id, what, result string
	bytes            []byte
}

func goldenFrames(t testing.TB) (all []goldenFrame) {
	for _, col := range golden(t, "../../sb-gate/frame/testdata/frames.txt") {
		digits, zeros, _ := strings.Cut(col[3], "+")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(zeros)
		all = append(all, goldenFrame{col[0], col[1], col[2], append(b, make([]byte, n)...)})
	}
	return all
}

// golden reads lines of four columns.
func golden(t testing.TB, file string) (all [][]string) {
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		col := strings.SplitN(line, " | ", 4)
		if len(col) != 4 {
			t.Fatalf("%s: %q", file, line)
		}
		all = append(all, col)
	}
	return all
}

// The guest and the gateway.
var (
	guestMAC   = net.HardwareAddr{0x5a, 0x94, 0xef, 0xe4, 0x0c, 0x02}
	gatewayMAC = net.HardwareAddr{0x5a, 0x94, 0xef, 0xe4, 0x0c, 0x01}
	guestAddr  = netip.MustParseAddr("198.18.0.2")
)

// etherFrame is a frame of the guest's to the gateway.
func etherFrame(typ uint16, payload []byte) []byte {
	b := append(append([]byte{}, gatewayMAC...), guestMAC...)
	return append(binary.BigEndian.AppendUint16(b, typ), payload...)
}

// ipPacket is an IPv4 packet of the guest's.
func ipPacket(proto byte, to string, ttl byte, payload []byte) []byte {
	b := make([]byte, 20, 20+len(payload))
	b[0], b[6], b[8], b[9] = 0x45, 0x40, ttl, proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
	copy(b[12:], guestAddr.AsSlice())
	copy(b[16:], netip.MustParseAddr(to).AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^onesSum(b, 0))
	return append(b, payload...)
}

// onesSum is the Internet checksum, not inverted.
func onesSum(b []byte, sum uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		word := uint32(b[i]) << 8
		if i+1 < len(b) {
			word |= uint32(b[i+1])
		}
		sum += word
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// synSegment is the beginning of a connection.
func synSegment(to string, from, port uint16) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint32(b[4:], 1000)
	b[12], b[13], b[14] = 5<<4, 2, 0xff
	sum := uint32(onesSum(append(guestAddr.AsSlice(), netip.MustParseAddr(to).AsSlice()...), 6+20))
	binary.BigEndian.PutUint16(b[16:], ^onesSum(b, sum))
	return b
}

// udpDatagram has no checksum.
func udpDatagram(from, port uint16, data []byte) []byte {
	b := make([]byte, 8, 8+len(data))
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(data)))
	return append(b, data...)
}

// resident is the memory of a process, in bytes.
func resident(t testing.TB, pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	kb, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
