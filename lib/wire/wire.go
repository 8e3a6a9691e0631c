// Package wire is the conversation between sb-gate and sb-dns: records on a
// stream, each a line of words, some followed by the bytes of a DNS message.
//
//	q ID LEN [stream] + bytes             gate: the guest asks this (over TCP)
//	a ID LEN VERDICT REASON NAME TYPE RULE TTL HANDLE + bytes
//	                                      dns: answer it so, and enter the handle first
//	r ID NAME                             gate: where is this name now?
//	s ID REASON TTL ADDR,ADDR…            dns: there
//	x NAME SERVER UP DOWN MS REASON       dns: it asked the host's resolver (for the audit log)
//	h NAME HANDLE                         either: a handle that stands already
//	hello NONCE, table NONCE COUNT        either side began anew, and the other's answer to it
//
// A side that starts, perhaps in the place of one that died, says hello and
// throws away what it reads until the table with its own nonce: what its
// predecessor left half-read cannot be taken for a record. Then follow COUNT
// handles, so that an address goes on standing for the same name.
//
// Every record is written in one write. The gate holds no DNS parser and sb-dns
// no flow; the gate judges every name again itself.
package wire

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"sb/lib/reason"
)

// The bounds of a record. A DNS message over TCP may have 65,535 bytes, but no
// question does; RFC 6891 recommends 4096 as the most over UDP.
const (
	MaxMessage = 4096
	maxLine    = 4096
	MaxAddrs   = 32 // addresses in one answer
)

// Query is a question of the guest's, as it came.
type Query struct {
	ID      uint32
	Stream  bool // it came over TCP, so that its answer may be longer than a datagram
	Message []byte
}

// Answer is what to send back, and what was decided. Message is empty where
// nothing should be sent. Handle is valid if the name has one.
type Answer struct {
	ID      uint32
	Allow   bool
	Reason  reason.Code
	Name    string // as asked, in any bytes; escaped on the wire
	Type    string // record type, such as "a"
	Rule    string
	TTL     uint32 // seconds
	Handle  netip.Addr
	Message []byte
}

// Resolve asks for the real addresses of a name, at dial time.
type Resolve struct {
	ID   uint32
	Name string
}

// Resolved answers Resolve: addresses, at most MaxAddrs, or the reason why none.
type Resolved struct {
	ID     uint32
	Reason reason.Code // allow-rule if there are addresses
	TTL    uint32      // seconds
	Addrs  []netip.Addr
}

// Exchange is one conversation with the host's resolver: payload bytes each way.
type Exchange struct {
	Name     string
	Server   string // address:port, or "system" where the system's own library asks
	Up, Down int64
	Millis   int64
	Reason   reason.Code
}

// Handle is a name and the address that stands for it.
type Handle struct {
	Name string
	Addr netip.Addr
}

// Hello is a side that starts; Table its answer, before Count handles.
type Hello struct{ Nonce string }
type Table struct {
	Nonce string
	Count int
}

// Conn is one end of the wire. Send may be called by several goroutines, Next
// by one.
type Conn struct {
	rw io.ReadWriter
	r  *bufio.Reader
	mu sync.Mutex
}

// NewConn speaks on rw, which the caller goes on owning.
func NewConn(rw io.ReadWriter) *Conn {
	return &Conn{rw: rw, r: bufio.NewReaderSize(rw, maxLine+MaxMessage)}
}

// Greet says hello and reads the other side's table, throwing away what was
// meant for a predecessor. enter is called for each handle in it. While it
// waits it answers the other side's own hello with table.
func (c *Conn) Greet(table func() []Handle, enter func(Handle) error) error {
	nonce := rand.Text()
	if err := c.Send(Hello{nonce}); err != nil {
		return err
	}
	mark := []byte("table " + nonce + " ")
	hello := []byte("hello ")
	for window := []byte{}; ; {
		b, err := c.r.ReadByte()
		if err != nil {
			return fmt.Errorf("wait for the other side: %w", err)
		}
		if window = append(window, b); len(window) > maxLine {
			window = append(window[:0], window[len(window)-256:]...)
		}
		if bytes.HasSuffix(window, mark) {
			break
		}
		if b == '\n' {
			// A side that starts at the same time says hello too.
			if i := bytes.LastIndex(window, hello); i >= 0 {
				if other := string(bytes.TrimSpace(window[i+len(hello):])); len(other) == len(nonce) {
					if err := c.SendTable(other, table()); err != nil {
						return err
					}
				}
			}
			window = window[:0]
		}
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	count, err := strconv.ParseUint(line, 10, 24)
	if err != nil {
		return fmt.Errorf("%w: table of %q handles", errRecord, line)
	}
	for range count {
		rec, err := c.Next()
		if err != nil {
			return err
		}
		h, ok := rec.(Handle)
		if !ok {
			return fmt.Errorf("%w: %T in a table", errRecord, rec)
		}
		if err := enter(h); err != nil {
			return err
		}
	}
	return nil
}

// SendTable answers a Hello.
func (c *Conn) SendTable(nonce string, handles []Handle) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "table %s %d\n", nonce, len(handles))
	for _, h := range handles {
		fmt.Fprintf(&b, "h %s %s\n", h.Name, h.Addr)
	}
	return c.write(b.Bytes())
}

// Send writes one record.
func (c *Conn) Send(rec any) error {
	b, err := encode(rec)
	if err != nil {
		return err
	}
	return c.write(b)
}

func (c *Conn) write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.rw.Write(b)
	return err
}

func encode(rec any) ([]byte, error) {
	switch r := rec.(type) {
	case Query:
		stream := ""
		if r.Stream {
			stream = " stream"
		}
		return body(fmt.Appendf(nil, "q %d %d%s\n", r.ID, len(r.Message), stream), r.Message)
	case Answer:
		verdict := "deny"
		if r.Allow {
			verdict = "allow"
		}
		head := fmt.Appendf(nil, "a %d %d %s %s %s %s %s %d %s\n", r.ID, len(r.Message), verdict,
			word(string(r.Reason)), word(r.Name), word(r.Type), word(r.Rule), r.TTL, addr(r.Handle))
		return body(head, r.Message)
	case Resolve:
		return fmt.Appendf(nil, "r %d %s\n", r.ID, word(r.Name)), nil
	case Resolved:
		if len(r.Addrs) > MaxAddrs {
			r.Addrs = r.Addrs[:MaxAddrs]
		}
		list := make([]string, len(r.Addrs))
		for i, a := range r.Addrs {
			list[i] = a.String()
		}
		return fmt.Appendf(nil, "s %d %s %d %s\n", r.ID, word(string(r.Reason)), r.TTL, word(strings.Join(list, ","))), nil
	case Exchange:
		return fmt.Appendf(nil, "x %s %s %d %d %d %s\n", word(r.Name), word(r.Server), r.Up, r.Down, r.Millis, word(string(r.Reason))), nil
	case Handle:
		return fmt.Appendf(nil, "h %s %s\n", word(r.Name), r.Addr), nil
	case Hello:
		return fmt.Appendf(nil, "hello %s\n", r.Nonce), nil
	}
	return nil, fmt.Errorf("%w: no record of type %T", errRecord, rec)
}

func body(head, message []byte) ([]byte, error) {
	if len(message) > MaxMessage {
		return nil, fmt.Errorf("%w: a message of %d bytes, at most %d", errRecord, len(message), MaxMessage)
	}
	return append(head, message...), nil
}

// word writes a string as one word: "-" for nothing, URL-like escapes for what
// would end a word or a line.
func word(s string) string {
	switch s {
	case "":
		return "-"
	case "-":
		return "%2d"
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == '%' || s[i] >= 0x7f {
			fmt.Fprintf(&b, "%%%02x", s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func addr(a netip.Addr) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

var errRecord = errors.New("not a record of the dns wire")
