//go:build linux

package share

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sb/lib/fd"
	"sb/sb-vm/share/fusewire"
)

// counter is a stream that counts the requests by opcode.
type counter struct {
	io.Reader
	mu     sync.Mutex
	counts map[uint32]int
	head   []byte // of the message whose header is being read
	skip   int    // bytes left of the one before
}

// counted puts a counter before conn. It writes what it counted to file on
// SIGUSR1 and begins anew.
func counted(conn *os.File, file string) (*os.File, error) {
	near, far, err := fd.Pair("counted", fd.Stream)
	if err != nil {
		return nil, err
	}
	c := &counter{Reader: conn, counts: map[uint32]int{}}
	go func() { io.Copy(far, c); unix.Shutdown(int(far.Fd()), unix.SHUT_WR) }()
	go func() { io.Copy(conn, far); unix.Shutdown(int(conn.Fd()), unix.SHUT_WR) }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	go func() {
		for range signals {
			c.mu.Lock()
			b, _ := json.Marshal(c.counts)
			clear(c.counts)
			c.mu.Unlock()
			os.WriteFile(file+".new", b, 0o644)
			os.Rename(file+".new", file)
		}
	}()
	return near, nil
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := b[:n]; len(rest) > 0; {
		if k := min(c.skip, len(rest)); k > 0 {
			c.skip -= k
			rest = rest[k:]
			continue
		}
		k := min(fusewire.InHeader-len(c.head), len(rest))
		c.head = append(c.head, rest[:k]...)
		rest = rest[k:]
		if len(c.head) == fusewire.InHeader {
			c.counts[binary.LittleEndian.Uint32(c.head[4:])]++
			c.skip = int(binary.LittleEndian.Uint32(c.head)) - fusewire.InHeader
			c.head = c.head[:0]
		}
	}
	return n, err
}

// asked is what the guest asked since the last time, by opcode.
func (m *mounted) asked(t *testing.T, file string) map[uint32]int {
	t.Helper()
	os.Remove(file)
	if err := m.serve.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	counts := map[uint32]int{}
	soon(t, "the server writes its counts", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(b, &counts) == nil
	})
	return counts
}
