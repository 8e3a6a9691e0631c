package main

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"

	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/say"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is how long the guest may keep an answer, in seconds. The address stands
// for the name for ever; whether the name is allowed may change.
const ttl = 60

// server answers one sandbox's questions.
type server struct {
	conn     *wire.Conn
	rules    atomic.Pointer[rule.Set]
	handles  *handles
	upstream *upstream
	denied   dnsmessage.RCode
}

func newServer(m *manifest.Manifest, set *rule.Set) *server {
	s := &server{handles: newHandles(m.Network), denied: dnsmessage.RCodeNameError}
	if m.DNS.Denied == "refused" {
		s.denied = dnsmessage.RCodeRefused
	}
	s.rules.Store(set)
	s.upstream = newUpstream(func(x wire.Exchange) { s.send(x) })
	return s
}

// send writes a record; a wire that is broken ends the read loop too.
func (s *server) send(rec any) {
	if err := s.conn.Send(rec); err != nil {
		say.Warn("write to sb-gate: %v", err)
	}
}

// query answers a question, at once unless it asks for records that only the
// host's resolver has.
func (s *server) query(in wire.Query) {
	a, rest := s.decide(in)
	if rest == nil {
		s.send(a)
		return
	}
	go func() {
		rest(&a)
		s.send(a)
	}()
}

// decide judges a question and answers it, as far as it can be without asking
// anyone; rest does what is left.
func (s *server) decide(in wire.Query) (a wire.Answer, rest func(*wire.Answer)) {
	q, err := parse(in.Message, in.Stream)
	a = wire.Answer{ID: in.ID, Reason: reason.DNSMalformed, Name: q.text(), Type: typeName(q.typ)}
	switch {
	case err == errDrop:
		return a, nil
	case err == errOpCode:
		a.Message = q.build(dnsmessage.RCodeNotImplemented, a.Reason)
		return a, nil
	case err == errName:
		a.Reason = reason.BadName
		a.Message = q.build(dnsmessage.RCodeFormatError, a.Reason)
		return a, nil
	case err != nil:
		a.Message = q.build(dnsmessage.RCodeFormatError, a.Reason)
		return a, nil
	case q.class != dnsmessage.ClassINET:
		a.Message = q.build(dnsmessage.RCodeRefused, a.Reason)
		return a, nil
	}
	name, err := rule.NameFromLabels(q.labels)
	if err != nil {
		a.Reason = reason.BadName
		a.Message = q.build(s.denied, a.Reason)
		return a, nil
	}
	if other(q.typ) {
		rest = s.answerOther(&a, q, name)
	} else {
		s.answer(&a, q, name)
	}
	return a, rest
}

// answer decides about a question for addresses, or for anything else that has
// no answer here.
func (s *server) answer(a *wire.Answer, q question, name rule.Name) {
	if addr, ok := reverse(name); ok && q.typ == dnsmessage.TypePTR {
		s.answerReverse(a, q, addr)
		return
	}
	v := s.rules.Load().Lookup(name)
	a.Allow, a.Reason, a.Rule, a.TTL = v.Allow, v.Reason, v.Rule, ttl
	if !v.Allow {
		a.Message = q.build(s.denied, v.Reason)
		return
	}
	switch q.typ {
	case dnsmessage.TypeA:
		addr, ok := s.handles.of(name)
		if !ok {
			a.Allow, a.Reason = false, reason.HandleBudget
			a.Message = q.build(s.denied, a.Reason)
			return
		}
		a.Handle = addr
		a.Message = q.build(dnsmessage.RCodeSuccess, "", func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
			return b.AResource(h, dnsmessage.AResource{A: addr.As4()})
		})
	case dnsmessage.TypeAAAA, dnsmessage.TypeHTTPS, dnsmessage.TypeSVCB:
		// The machine has no IPv6, and hints would lead past the handle.
		a.Message = q.build(dnsmessage.RCodeSuccess, "")
	default:
		a.Allow, a.Reason = false, reason.DNSType
		a.Message = q.build(dnsmessage.RCodeSuccess, a.Reason)
	}
}

// answerReverse names the handle that is asked about: that is known here.
func (s *server) answerReverse(a *wire.Answer, q question, addr netip.Addr) {
	name, ok := s.handles.name(addr)
	target, err := dnsmessage.NewName(name.String() + ".")
	if !ok || err != nil || !s.rules.Load().Lookup(name).Allow {
		a.Reason = reason.NoAllowRule
		a.Message = q.build(s.denied, a.Reason)
		return
	}
	a.Allow, a.Reason, a.Name, a.TTL = true, reason.AllowRule, name.String(), ttl
	a.Message = q.build(dnsmessage.RCodeSuccess, "", func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
		return b.PTRResource(h, dnsmessage.PTRResource{PTR: target})
	})
}

// record appends one answer to a message; h has the question's name and type.
type record func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error

// build makes an answer from parsed data alone: nothing that came from upstream
// is passed on as it was. A refusal tells an asker that speaks EDNS why. One that
// is too long for the asker is cut: over UDP to nothing, which sends it to TCP,
// and there to as many records as fit.
func (q question) build(code dnsmessage.RCode, why reason.Code, records ...record) []byte {
	msg := q.pack(code, why, false, records)
	if len(msg) > q.limit && q.limit <= maxUDP {
		return q.pack(code, why, true, nil)
	}
	for len(msg) > q.limit && len(records) > 0 {
		records = records[:len(records)-1]
		msg = q.pack(code, why, false, records)
	}
	return msg
}

func (q question) pack(code dnsmessage.RCode, why reason.Code, cut bool, records []record) []byte {
	b := dnsmessage.NewBuilder(make([]byte, 0, minUDP), dnsmessage.Header{
		ID: q.id, Response: true, OpCode: q.op, RecursionDesired: q.recursion, RecursionAvailable: true, Truncated: cut, RCode: code})
	b.EnableCompression()
	err := b.StartQuestions()
	if err == nil && q.whole {
		err = b.Question(dnsmessage.Question{Name: q.name, Type: q.typ, Class: q.class})
	}
	if err == nil {
		err = b.StartAnswers()
	}
	for _, add := range records {
		if err == nil {
			err = add(&b, dnsmessage.ResourceHeader{Name: q.name, Type: q.typ, Class: dnsmessage.ClassINET, TTL: ttl})
		}
	}
	if err == nil && q.edns {
		err = addOPT(&b, why)
	}
	msg, ferr := b.Finish()
	if err != nil || ferr != nil {
		return nil
	}
	return msg
}

// addOPT adds the EDNS record, with an extended error (RFC 8914) for a refusal.
func addOPT(b *dnsmessage.Builder, why reason.Code) error {
	const optionEDE, blocked = 15, 15
	if err := b.StartAdditionals(); err != nil {
		return err
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(maxUDP, dnsmessage.RCodeSuccess, false); err != nil {
		return err
	}
	var opt dnsmessage.OPTResource
	if why != "" {
		data := binary.BigEndian.AppendUint16(nil, blocked)
		opt.Options = []dnsmessage.Option{{Code: optionEDE, Data: append(data, "sb: "+string(why)...)}}
	}
	return b.OPTResource(h, opt)
}
