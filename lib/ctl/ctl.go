// Package ctl is the conversation between sb-run and the parts it started:
// messages on a local stream socket, each some key=value lines and an empty
// line, in the manner of wireguard's configuration protocol.
//
//	ask=alive            →  ok=alive
//	ask=rules            →  ok=rules            the rules are in force
//	generation=2             generation=2
//	allow=example.com
//	deny=bad.example.com
//	ask=audit            →  ok=audit            lines go to the file that came along
//	files=1
//	ask=totals           →  ok=totals
//	                         total=3 dns evil.example - no-allow-rule
//	                     ←  event=rotate        the gate's log is full: give it a new file
//
// The asking side waits for one answer before it asks again. A value cannot
// hold a newline: a name in a total is written as a field of lib/audit. A message
// has at most MaxMessage bytes.
package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxMessage bounds a message in bytes: 10,000 rules fit.
const MaxMessage = 4 << 20

// maxFiles bounds the descriptors that come with one message.
const maxFiles = 4

// Message is the lines of a message, in order. A key may come several times.
type Message []Pair

// Pair is one line.
type Pair struct{ Key, Value string }

// Get returns the first value of key, or "".
func (m Message) Get(key string) string {
	for _, p := range m {
		if p.Key == key {
			return p.Value
		}
	}
	return ""
}

// All returns every value of key.
func (m Message) All(key string) (values []string) {
	for _, p := range m {
		if p.Key == key {
			values = append(values, p.Value)
		}
	}
	return values
}

// Conn is one end. Any goroutine may Send; one reads with Receive.
type Conn struct {
	c   *net.UnixConn
	mu  sync.Mutex // of Send
	buf []byte

	came  sync.Mutex
	files []*os.File // that came and that nobody took yet
}

// NewConn speaks on f, one end of a stream pair, and takes it over.
func NewConn(f *os.File) (*Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open the ctl wire: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("open the ctl wire: not a local socket")
	}
	return &Conn{c: u}, nil
}

// Close ends the conversation and closes the files that nobody took.
func (c *Conn) Close() error {
	err := c.c.Close()
	c.came.Lock()
	defer c.came.Unlock()
	for _, f := range c.files {
		f.Close()
	}
	c.files = nil
	return err
}

// Send writes a message; files go with it and stay the caller's.
func (c *Conn) Send(m Message, files ...*os.File) error {
	b, err := encode(m, len(files))
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, _, err := c.c.WriteMsgUnix(b, rights, nil)
	if err == nil && n < len(b) {
		_, err = c.c.Write(b[n:])
	}
	return err
}

// maxError bounds the words of an error in an answer, in bytes.
const maxError = 1024

// Answer sends what a question came to: the message m, or err as an error. A
// message that no wire can carry is an error too, and not the end of the wire:
// what is in it may be another's words. An error of Answer is the wire's.
func (c *Conn) Answer(m Message, err error) error {
	if err == nil {
		_, err = encode(m, 0)
	}
	if err != nil {
		text := err.Error()
		text = strings.ReplaceAll(text[:min(len(text), maxError)], "\n", " ")
		m = Message{{Key: "error", Value: text}}
	}
	return c.Send(m)
}

// encode is a message as it is sent along with so many files.
func encode(m Message, files int) ([]byte, error) {
	var b bytes.Buffer
	for _, p := range m {
		if p.Key == "" || strings.ContainsAny(p.Key, "=\n") || strings.Contains(p.Value, "\n") {
			return nil, fmt.Errorf("send on ctl: %.40q=%.40q is no line", p.Key, p.Value)
		}
		fmt.Fprintf(&b, "%s=%s\n", p.Key, p.Value)
	}
	if files > 0 {
		fmt.Fprintf(&b, "files=%d\n", files)
	}
	b.WriteByte('\n')
	if b.Len() > MaxMessage {
		return nil, fmt.Errorf("send on ctl: %d bytes, at most %d", b.Len(), MaxMessage)
	}
	return b.Bytes(), nil
}

// Receive reads one message and the files that came with it, which the caller
// then owns. io.EOF: the other side ended.
func (c *Conn) Receive() (Message, []*os.File, error) {
	for {
		if i := bytes.Index(c.buf, []byte("\n\n")); i >= 0 {
			m, err := parse(string(c.buf[:i]))
			c.buf = append(c.buf[:0], c.buf[i+2:]...)
			if err != nil {
				return nil, nil, err
			}
			// Descriptors may arrive with the bytes of an earlier message: the
			// message itself says how many are its own.
			n, _ := strconv.Atoi(m.Get("files"))
			files, err := c.take(n)
			return m, files, err
		}
		if len(c.buf) > MaxMessage {
			return nil, nil, fmt.Errorf("receive on ctl: more than %d bytes", MaxMessage)
		}
		if err := c.more(); err != nil {
			return nil, nil, err
		}
	}
}

// take takes n of the files that came.
func (c *Conn) take(n int) ([]*os.File, error) {
	c.came.Lock()
	defer c.came.Unlock()
	if n < 0 || n > len(c.files) {
		return nil, fmt.Errorf("receive on ctl: %d files, %d came", n, len(c.files))
	}
	files := c.files[:n:n]
	c.files = c.files[n:]
	return files, nil
}

func (c *Conn) more() error {
	chunk, oob := make([]byte, 32<<10), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, _, _, err := c.c.ReadMsgUnix(chunk, oob)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	c.buf = append(c.buf, chunk[:n]...)
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return fmt.Errorf("receive on ctl: %w", err)
	}
	c.came.Lock()
	defer c.came.Unlock()
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fmt.Errorf("receive on ctl: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			c.files = append(c.files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return nil
}

func parse(text string) (Message, error) {
	var m Message
	for l := range strings.SplitSeq(text, "\n") {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("receive on ctl: %.40q is no line", l)
		}
		m = append(m, Pair{k, v})
	}
	return m, nil
}

// SayAlive answers sb-run, which asks a tool that it tells nothing else whether it is
// alive. It returns the error that ended the wire.
func (c *Conn) SayAlive() error {
	for {
		m, files, err := c.Receive()
		if err != nil {
			return err
		}
		for _, f := range files {
			f.Close()
		}
		answer, wrong := Message{{Key: "ok", Value: "alive"}}, error(nil)
		if m.Get("ask") != "alive" {
			wrong = fmt.Errorf("no such question: %q", m.Get("ask"))
		}
		if err := c.Answer(answer, wrong); err != nil {
			return err
		}
	}
}
