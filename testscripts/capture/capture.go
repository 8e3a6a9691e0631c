// Package capture watches a network device from outside, as tcpdump would, and
// accounts for what it sees flow by flow. It imports nothing of this project, so
// that it cannot agree with it by mistake.
package capture

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Capture is a packet socket on one device. Needs CAP_NET_RAW.
type Capture struct {
	fd   int
	done chan struct{}

	mu      sync.Mutex
	flows   map[key]*Flow
	order   []*Flow
	other   map[string]int
	parts   map[fragment]bool
	last    time.Time
	stopped bool
	err     error
}

const (
	kept    = 256      // bytes of a packet that are looked at: all headers
	sockBuf = 64 << 20 // for bursts; what is lost all the same is an error
)

// Start begins to watch a device of this network namespace.
func Start(device string) (*Capture, error) {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("capture on %s: %w", device, err)
	}
	all := htons(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("capture on %s: %w", device, err)
	}
	for _, opt := range [][3]int{{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, sockBuf}, {unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1}} {
		if err == nil {
			err = unix.SetsockoptInt(fd, opt[0], opt[1], opt[2])
		}
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20000})
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("capture on %s: %w", device, err)
	}
	c := &Capture{fd: fd, done: make(chan struct{}), flows: map[key]*Flow{}, other: map[string]int{}, parts: map[fragment]bool{}}
	go c.read()
	return c, nil
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

// read takes packets until the capture is stopped and none is left.
func (c *Capture) read() {
	defer close(c.done)
	buf, oob := make([]byte, kept), make([]byte, 256)
	for {
		c.mu.Lock()
		stopped := c.stopped
		c.mu.Unlock()
		n, oobn, _, from, err := unix.Recvmsg(c.fd, buf, oob, unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN && stopped:
			return
		case err == unix.EAGAIN:
		case err != nil:
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		default:
			link, _ := from.(*unix.SockaddrLinklayer)
			c.mu.Lock()
			c.last = stamp(oob[:oobn])
			c.packet(buf[:min(n, kept)], n, link != nil && link.Pkttype == unix.PACKET_OUTGOING, c.last)
			c.mu.Unlock()
		}
	}
}

// stamp is when the kernel saw the packet.
func stamp(oob []byte) time.Time {
	all, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range all {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(native(m.Data)), int64(native(m.Data[8:])))
		}
	}
	return time.Now()
}

// Flows is what was seen so far, oldest first.
func (c *Capture) Flows() []Flow {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Flow, 0, len(c.order))
	for _, f := range c.order {
		all = append(all, *f)
	}
	return all
}

// Other is what was seen beside flows, by what it is, with how often.
func (c *Capture) Other() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int{}
	for what, n := range c.other {
		all[what] = n
	}
	return all
}

// Quiet reports whether nothing was seen for that long.
func (c *Capture) Quiet(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last) > d
}

// Stop ends the capture. The error says that it did not see everything.
func (c *Capture) Stop() error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	<-c.done
	defer unix.Close(c.fd)
	st, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && st.Drops > 0 {
		err = fmt.Errorf("%d packets were lost", st.Drops)
	}
	if err = errors.Join(c.err, err); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// StartQuiet begins to watch a device when nothing more of what went before is
// heard on it.
func StartQuiet(device string) (*Capture, error) {
	for {
		c, err := Start(device)
		if err != nil {
			return nil, err
		}
		time.Sleep(300 * time.Millisecond) // what is heard in it is of before
		if len(c.Flows()) == 0 {
			return c, nil
		}
		c.Stop()
	}
}

// Settle waits, at most d, until every TCP flow has ended and nothing more comes,
// and ends the capture. It returns what was seen, and what left the host beside
// it, ARP excepted: the kernel's own, to find its neighbour.
func (c *Capture) Settle(d time.Duration) (flows []Flow, left []string, err error) {
	open := func(f Flow) bool { return f.Proto == "tcp" && f.Open && !f.Ended() }
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !slices.ContainsFunc(c.Flows(), open) && c.Quiet(200*time.Millisecond) {
			break
		}
	}
	if err := c.Stop(); err != nil {
		return nil, nil, err
	}
	for what, n := range c.Other() {
		if strings.HasPrefix(what, "out ") && what != "out arp" {
			left = append(left, fmt.Sprintf("%s, %d times", what, n))
		}
	}
	return c.Flows(), left, nil
}
