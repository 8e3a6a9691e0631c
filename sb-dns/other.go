package main

import (
	"context"
	"net"

	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// maxRecords bounds the records of one answer.
const maxRecords = 16

// other reports whether a type is one that a dns: rule opens.
func other(t dnsmessage.Type) bool {
	return t == dnsmessage.TypeTXT || t == dnsmessage.TypeSRV || t == dnsmessage.TypeMX
}

// answerOther answers a question for TXT, SRV or MX records. Where a rule opens
// them, the rest is to ask for them.
func (s *server) answerOther(a *wire.Answer, q question, name rule.Name) (rest func(*wire.Answer)) {
	v := s.rules.Load().LookupOther(name)
	a.Allow, a.Reason, a.Rule, a.TTL = v.Allow, v.Reason, v.Rule, ttl
	switch {
	case v.Allow:
		return func(a *wire.Answer) { s.ask(a, q, name) }
	case v.Reason == reason.DNSType:
		// The name is there; it has no such records as far as the guest may know.
		a.Message = q.build(dnsmessage.RCodeSuccess, v.Reason)
	default:
		a.Message = q.build(s.denied, v.Reason)
	}
	return nil
}

// ask asks the host's resolver and builds the answer from what it parsed.
func (s *server) ask(a *wire.Answer, q question, name rule.Name) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	f, why := s.upstream.find(ctx, look{name, q.typ}, s.rules.Load().Budgeted(name))
	if why == reason.AllowRule {
		a.Message = q.build(dnsmessage.RCodeSuccess, "", f.records...)
		return
	}
	a.Allow, a.Reason = false, why
	code := dnsmessage.RCodeServerFailure
	if why == reason.NoSuchName {
		code = dnsmessage.RCodeNameError
	}
	a.Message = q.build(code, why)
}

// lookOther asks for the records of one of the types that a dns: rule opens. What
// the resolver could read of them counts, though it complains about the rest.
func lookOther(ctx context.Context, r *net.Resolver, l look) ([]record, error) {
	var out []record
	full := l.name.String() + "."
	var err error
	switch l.typ {
	case dnsmessage.TypeTXT:
		var texts []string
		texts, err = r.LookupTXT(ctx, full)
		for _, t := range texts {
			out = append(out, txtRecord(t))
		}
	case dnsmessage.TypeMX:
		var mx []*net.MX
		mx, err = r.LookupMX(ctx, full)
		for _, m := range mx {
			out = append(out, mxRecord(m))
		}
	case dnsmessage.TypeSRV:
		var srv []*net.SRV
		_, srv, err = r.LookupSRV(ctx, "", "", full)
		for _, v := range srv {
			out = append(out, srvRecord(v))
		}
	}
	if len(out) > 0 {
		return out[:min(len(out), maxRecords)], nil
	}
	return nil, err
}

func txtRecord(text string) record {
	return func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
		// Strings of at most 255 bytes (RFC 1035, section 3.3.14).
		var parts []string
		for t := text; ; t = t[255:] {
			if len(t) <= 255 {
				return b.TXTResource(h, dnsmessage.TXTResource{TXT: append(parts, t)})
			}
			parts = append(parts, t[:255])
		}
	}
}

func mxRecord(m *net.MX) record {
	return func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
		host, err := dnsmessage.NewName(m.Host)
		if err != nil {
			return err
		}
		return b.MXResource(h, dnsmessage.MXResource{Pref: m.Pref, MX: host})
	}
}

func srvRecord(v *net.SRV) record {
	return func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
		host, err := dnsmessage.NewName(v.Target)
		if err != nil {
			return err
		}
		return b.SRVResource(h, dnsmessage.SRVResource{Priority: v.Priority, Weight: v.Weight, Port: v.Port, Target: host})
	}
}
