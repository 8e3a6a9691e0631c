package netns

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/testscripts/world"

	"golang.org/x/sys/unix"
)

// TestD22Descriptors: a gate that may open no more refuses dials, and goes on
// answering questions and writing its log.
func TestD22Descriptors(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	h := l.handle("allowed.example.org")
	pid := l.gate.Process.Pid
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	held, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	const free = 10
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(held) + free), Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	refused := 0
	for range 100 {
		began := time.Now()
		c, err := l.dialFrom(0, h+":80")
		switch {
		case err == nil:
			open = append(open, c)
			defer c.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			refused++
		default:
			t.Errorf("neither opened nor refused: %v", err)
		}
		if took := time.Since(began); took > quick {
			t.Errorf("it took %v", took)
		}
	}
	if len(open) == 0 || len(open) > free || refused != 100-len(open) {
		t.Errorf("%d were opened, %d refused", len(open), refused)
	}
	if l.handle("allowed.example.org") != h {
		t.Error("another handle")
	}
	l.logsN(int64(refused), "dial tcp allowed.example.org "+world.CDN+":80 descriptors-out")
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	l.good("allowed.example.org")
}

// TestD25PortsUsedAgain: connections from one port of the guest's, one after the
// other, each served at once: after a reset, after the guest's end came first, and
// after the server's did.
func TestD25PortsUsedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	h := l.handle("allowed.example.org")
	const request = "GET /x HTTP/1.1\r\nHost: allowed.example.org\r\n"
	for _, c := range []struct {
		how  string
		port int
		end  func(c *net.TCPConn)
	}{
		{"reset", 21001, func(c *net.TCPConn) { c.SetLinger(0) }},
		{"the guest ends first", 21002, func(c *net.TCPConn) { c.CloseWrite(); io.Copy(io.Discard, c) }},
		{"the server ends first", 21003, func(c *net.TCPConn) { io.Copy(io.Discard, c) }},
	} {
		for i := range 20 {
			began := time.Now()
			conn, err := l.dialFrom(c.port, h+":80")
			for err != nil && time.Since(began) < quick { // one of the two kernels has not seen the end yet
				time.Sleep(time.Millisecond)
				conn, err = l.dialFrom(c.port, h+":80")
			}
			if err != nil {
				t.Errorf("%s, connection %d: %v\n%s", c.how, i, err, l.tail())
				break
			}
			tail := "\r\n"
			if c.how == "the server ends first" {
				tail = "Connection: close\r\n\r\n"
			}
			io.WriteString(conn, request+tail)
			b := make([]byte, 4096)
			n, err := conn.Read(b)
			if !strings.HasPrefix(string(b[:n]), "HTTP/1.1 200") {
				t.Errorf("%s, connection %d: %q, %v", c.how, i, b[:n], err)
			}
			c.end(conn.(*net.TCPConn))
			conn.Close()
			// A busy machine may lose a SYN of a connection that is ending still; the
			// next one comes after a second.
			if took := time.Since(began); took > 3*quick {
				t.Errorf("%s: connection %d took %v", c.how, i, took)
			}
		}
	}
}

// TestD25ResetStorm: resets and acknowledgements of nothing, from every port, do
// not disturb a good flow.
func TestD25ResetStorm(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	h := l.handle("allowed.example.org")
	p := l.packets()
	for i := range 30_000 {
		b := synSegment(h, uint16(30000+i%20000), 80)
		b[13] = []byte{4, 0x14, 0x10, 1, 0x11, 0x18}[i%6]
		p.send(etherFrame(0x0800, ipPacket(6, h, 64, b)))
		if i%1000 == 999 {
			p.taken(ignore)
		}
		if i%10_000 == 9999 {
			l.good("allowed.example.org")
		}
	}
	l.logsN(3, "allow tcp") // the control's
}

// TestD23FlowMemory: a connection that is open and idle costs the gate little, and
// nothing when it has ended.
func TestD23FlowMemory(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	h := l.handle("allowed.example.org")
	const n = 500
	round := func() (grown int64) {
		var open []net.Conn
		before := resident(t, l.gate.Process.Pid)
		for range n {
			c, err := l.dialFrom(0, h+":80")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			open = append(open, c)
			if _, err := io.WriteString(c, "GET /x HTTP/1.1\r\nHost: allowed.example.org\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range open {
			if k, err := c.Read(make([]byte, 4096)); k == 0 {
				t.Fatal(err)
			}
		}
		grown = resident(t, l.gate.Process.Pid) - before
		for _, c := range open {
			c.Close()
		}
		return grown
	}
	first := round()
	if each := first / n; each > 64<<10 {
		t.Errorf("a flow costs %d bytes", each)
	}
	l.logsN(n, "close tcp allowed.example.org")
	l.good("allowed.example.org")
	second := round()
	t.Logf("%d flows: %d KiB each, and %d KiB again", n, first/n>>10, second/n>>10)
	if second > first/2 {
		t.Errorf("the second %d flows take %d bytes more: nothing was given back of the %d of the first", n, second, first)
	}
}
