package main

import (
	"errors"
	"net/netip"
	"strings"

	"sb/lib/rule"

	"golang.org/x/net/dns/dnsmessage"
)

// question is a query that has a form in which it can be answered.
type question struct {
	id        uint16
	recursion bool
	name      dnsmessage.Name // as asked, the case kept
	labels    [][]byte
	typ       dnsmessage.Type
	class     dnsmessage.Class
	edns      bool // the asker speaks EDNS, so it can be told why
}

var (
	errDrop   = errors.New("no query") // nothing is answered
	errFormat = errors.New("malformed query")
)

// parse reads a query of exactly one question (RFC 1035, section 4.1). The
// question's name is read as labels here: its presentation form cannot tell a
// dot in a label from one between two.
func parse(msg []byte) (question, error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return question{}, errDrop
	}
	q := question{id: h.ID, recursion: h.RecursionDesired}
	all, err := p.AllQuestions()
	if err != nil || len(all) != 1 || h.OpCode != 0 {
		return q, errFormat
	}
	q.name, q.typ, q.class = all[0].Name, all[0].Type, all[0].Class
	if q.labels, err = labels(msg[12:]); err != nil {
		return q, err
	}
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, errFormat
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return q, nil
		}
		if err != nil {
			return q, errFormat
		}
		q.edns = q.edns || h.Type == dnsmessage.TypeOPT
		if p.SkipAdditional() != nil {
			return q, errFormat
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

// text is the name for the log, whatever its bytes.
func (q question) text() string {
	parts := make([]string, len(q.labels))
	for i, l := range q.labels {
		parts[i] = strings.ToLower(string(l))
	}
	return strings.Join(parts, ".")
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
