package main

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"

	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// question is a query that has a form in which it can be answered.
type question struct {
	id        uint16
	op        dnsmessage.OpCode
	recursion bool
	whole     bool            // the question below was read, so it can be repeated
	name      dnsmessage.Name // as asked, the case kept
	labels    [][]byte
	typ       dnsmessage.Type
	class     dnsmessage.Class
	edns      bool // the asker speaks EDNS, so it can be told why
	limit     int  // bytes of the longest answer that it takes
}

var (
	errDrop   = errors.New("no query") // nothing is answered
	errFormat = errors.New("malformed query")
	errOpCode = errors.New("not a standard query")
	errName   = errors.New("a name that cannot be written")
)

// The size of an answer over UDP: what every asker takes (RFC 1035, section
// 2.3.4), and the most that is sent, which fits any path (RFC 9715).
const (
	minUDP = 512
	maxUDP = 1232
)

// parse reads a query of exactly one question (RFC 1035, section 4.1). The
// question's name is read as labels here: its presentation form cannot tell a
// dot in a label from one between two.
func parse(msg []byte, stream bool) (question, error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return question{}, errDrop
	}
	q := question{id: h.ID, op: h.OpCode, recursion: h.RecursionDesired, limit: minUDP}
	if stream {
		q.limit = wire.MaxMessage
	}
	if h.OpCode != 0 {
		return q, errOpCode
	}
	q.labels, err = labels(msg[12:])
	if err != nil {
		return q, err
	}
	all, err := p.AllQuestions()
	if _, bad := rule.NameFromLabels(q.labels); err != nil && bad != nil {
		return q, errName // the library takes no label with a dot in it
	}
	if err != nil || len(all) != 1 {
		return q, errFormat
	}
	q.name, q.typ, q.class, q.whole = all[0].Name, all[0].Type, all[0].Class, true
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, errFormat
	}
	return q, q.additional(&p, stream)
}

// additional looks for the EDNS record (RFC 6891), of which there is at most one.
func (q *question) additional(p *dnsmessage.Parser, stream bool) error {
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return nil
		}
		if err != nil || h.Type == dnsmessage.TypeOPT && q.edns || p.SkipAdditional() != nil {
			return errFormat
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns = true
			if !stream {
				q.limit = min(max(int(h.Class), minUDP), maxUDP)
			}
		}
	}
}

// labels reads the labels of an uncompressed name. In a question there is
// nothing before it that it could point to.
func labels(b []byte) ([][]byte, error) {
	var out [][]byte
	for total := 0; ; {
		if len(b) == 0 {
			return nil, errFormat
		}
		n := int(b[0])
		if total += n + 1; n > 63 || total > 255 || len(b) < n+1 {
			return nil, errFormat
		}
		if n == 0 {
			return out, nil
		}
		out = append(out, b[1:n+1])
		b = b[n+1:]
	}
}

// text is the name for the log, whatever its bytes: only ASCII is lowered.
func (q question) text() string {
	b := bytes.Join(q.labels, []byte{'.'})
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// reverse returns the address that a name of in-addr.arpa asks about.
func reverse(name rule.Name) (netip.Addr, bool) {
	rest, ok := strings.CutSuffix(name.String(), ".in-addr.arpa")
	if !ok {
		return netip.Addr{}, false
	}
	p := strings.Split(rest, ".")
	if len(p) != 4 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(p[3] + "." + p[2] + "." + p[1] + "." + p[0])
	return a, err == nil
}

// typeName is a record type in the log: "aaaa", "type257".
func typeName(t dnsmessage.Type) string {
	s := strings.ToLower(strings.TrimPrefix(t.String(), "Type"))
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		return "type" + s
	}
	return s
}
