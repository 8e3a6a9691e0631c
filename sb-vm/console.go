package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The bounds of what a guest can write on its console: the first maxConsole
// bytes are kept in the file, and of the rest the last maxTail.
const (
	maxConsole = 1 << 20
	maxTail    = 64 << 10
	tailShown  = 2000 // bytes of it in an error
)

// lastWords is how long they may take when the machine has ended.
const lastWords = time.Second

// console keeps what the machine says on its serial port.
type console struct {
	mu      sync.Mutex
	file    *os.File // nil: nowhere
	written int64
	dropped int64
	last    []byte
}

// openConsole keeps the console in a file, if path is not empty.
func openConsole(path string) (*console, error) {
	c := &console{}
	if path == "" {
		return c, nil
	}
	// What the guest says must not end up where a link leads.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the console's file: %w", err)
	}
	c.file = f
	return c, nil
}

// keep takes everything that the machine says on port, its serial port's other
// end. The function that it returns waits for its last words and closes both.
func (c *console) keep(port *os.File) (end func()) {
	said := make(chan struct{})
	go func() {
		io.Copy(c, port)
		close(said)
	}()
	return func() {
		// A hypervisor that keeps its end open is not waited for.
		port.SetReadDeadline(time.Now().Add(lastWords))
		<-said
		port.Close()
		c.Close()
	}
}

// Write takes what the machine says. It never fails: a machine must not stand
// still because its console cannot be kept.
func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, b...)
	if n := len(c.last) - maxTail; n > 0 {
		c.last = append(c.last[:0], c.last[n:]...)
	}
	room := min(int64(len(b)), maxConsole-c.written)
	if c.file != nil && room > 0 {
		c.file.Write(b[:room])
	}
	c.written += room
	c.dropped += int64(len(b)) - room
	return len(b), nil
}

// tail is the end of what was said, for an error.
func (c *console) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.last[max(0, len(c.last)-tailShown):])
}

// Close writes the end of a console that was longer than its file.
func (c *console) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	if c.dropped > 0 {
		end := c.last[max(0, len(c.last)-int(min(c.dropped, maxTail))):]
		fmt.Fprintf(c.file, "\n[%d bytes left out]\n", c.dropped-int64(len(end)))
		c.file.Write(end)
	}
	return c.file.Close()
}

var _ io.WriteCloser = (*console)(nil)
