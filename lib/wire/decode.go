package wire

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"sb/lib/reason"
)

// Next reads one record: a Query, Answer, Resolve, Resolved, Exchange, Handle,
// Hello or Table. A record that breaks a bound or does not parse is an error,
// after which the wire is of no use.
func (c *Conn) Next() (any, error) {
	text, err := c.line()
	if err != nil {
		return nil, err
	}
	p := parser{words: strings.Split(text, " ")}
	kind := p.word()
	var rec any
	switch kind {
	case "q":
		q := Query{ID: p.id()}
		size := p.size()
		q.Stream = len(p.words) > 0 && p.oneOf("stream") == "stream"
		q.Message = c.read(&p, size)
		rec = q
	case "a":
		a := Answer{ID: p.id()}
		size := p.size()
		a.Allow = p.oneOf("allow", "deny") == "allow"
		a.Reason = reason.Code(p.text())
		a.Name, a.Type, a.Rule = p.text(), p.text(), p.text()
		a.TTL = uint32(p.number(32))
		a.Handle = p.addr()
		a.Message = c.read(&p, size)
		rec = a
	case "r":
		rec = Resolve{ID: p.id(), Name: p.text()}
	case "s":
		rec = Resolved{ID: p.id(), Reason: reason.Code(p.text()), TTL: uint32(p.number(32)), Addrs: p.addrs()}
	case "x":
		rec = Exchange{Name: p.text(), Server: p.text(), Up: int64(p.number(63)), Down: int64(p.number(63)), Millis: int64(p.number(63)), Reason: reason.Code(p.text())}
	case "h":
		rec = Handle{Name: p.text(), Addr: p.addr()}
	case "hello":
		rec = Hello{Nonce: p.word()}
	case "table":
		rec = Table{Nonce: p.word(), Count: int(p.number(24))}
	default:
		return nil, fmt.Errorf("%w: begins with %.20q", errRecord, kind)
	}
	if p.err == nil && len(p.words) > 0 {
		p.err = fmt.Errorf("%w: %d words too many", errRecord, len(p.words))
	}
	if p.err != nil {
		return nil, fmt.Errorf("record %q: %w", kind, p.err)
	}
	return rec, nil
}

func (c *Conn) line() (string, error) {
	b, err := c.r.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull || err == nil && len(b) > maxLine:
		return "", fmt.Errorf("%w: a line of more than %d bytes", errRecord, maxLine)
	case err == io.EOF && len(b) > 0:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return string(b[:len(b)-1]), nil
}

// read reads the bytes that follow the line of a record.
func (c *Conn) read(p *parser, size int) []byte {
	if p.err != nil || size == 0 {
		return nil
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c.r, b); err != nil {
		p.err = err
		return nil
	}
	return b
}

// parser takes the words of a line one by one; the first fault stays.
type parser struct {
	words []string
	err   error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s", errRecord, fmt.Sprintf(format, args...))
	}
}

func (p *parser) word() string {
	if len(p.words) == 0 {
		p.fail("a word is missing")
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// text is the inverse of word().
func (p *parser) text() string {
	w := p.word()
	if w == "-" {
		return ""
	}
	if !strings.Contains(w, "%") {
		return w
	}
	var b strings.Builder
	for i := 0; i < len(w); i++ {
		if w[i] != '%' {
			b.WriteByte(w[i])
			continue
		}
		if i+2 >= len(w) {
			p.fail("a cut escape")
			return ""
		}
		n, err := strconv.ParseUint(w[i+1:i+3], 16, 8)
		if err != nil {
			p.fail("a bad escape")
			return ""
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String()
}

func (p *parser) number(bits int) uint64 {
	n, err := strconv.ParseUint(p.word(), 10, bits)
	if err != nil {
		p.fail("%v", err)
	}
	return n
}

func (p *parser) id() uint32 { return uint32(p.number(32)) }

func (p *parser) size() int {
	n := int(p.number(31))
	if n > MaxMessage {
		p.fail("a message of %d bytes, at most %d", n, MaxMessage)
	}
	return n
}

func (p *parser) oneOf(words ...string) string {
	w := p.word()
	for _, want := range words {
		if w == want {
			return w
		}
	}
	p.fail("%.20q is none of %v", w, words)
	return ""
}

func (p *parser) addr() netip.Addr {
	w := p.word()
	if w == "-" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(w)
	if err != nil {
		p.fail("%v", err)
	}
	return a
}

func (p *parser) addrs() []netip.Addr {
	w := p.text()
	if w == "" {
		return nil
	}
	list := strings.Split(w, ",")
	if len(list) > MaxAddrs {
		p.fail("%d addresses, at most %d", len(list), MaxAddrs)
		return nil
	}
	var out []netip.Addr
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		if err != nil {
			p.fail("%v", err)
			return nil
		}
		out = append(out, a)
	}
	return out
}
