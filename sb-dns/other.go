package main

import (
	"context"

	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// maxRecords bounds the records of one answer; over UDP it must fit.
const maxRecords = 16

// other reports whether a type is one that a dns: rule opens.
func other(t dnsmessage.Type) bool {
	return t == dnsmessage.TypeTXT || t == dnsmessage.TypeSRV || t == dnsmessage.TypeMX
}

// answerOther answers a question for TXT, SRV or MX records.
func (s *server) answerOther(a wire.Answer, q question, name rule.Name) {
	v := s.rules.Load().LookupOther(name)
	a.Allow, a.Reason, a.Rule, a.TTL = v.Allow, v.Reason, v.Rule, ttl
	switch {
	case v.Allow:
		s.ask(&a, q, name)
	case v.Reason == reason.DNSType:
		// The name is there; it has no such records as far as the guest may know.
		a.Message = q.build(dnsmessage.RCodeSuccess, v.Reason, nil)
	default:
		a.Message = q.build(s.denied, v.Reason, nil)
	}
	s.send(a)
}

// ask asks the host's resolver and builds the answer from what it parsed.
func (s *server) ask(a *wire.Answer, q question, name rule.Name) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	add, why := s.upstream.other(ctx, name, q.typ, s.rules.Load().Budgeted(name))
	switch why {
	case "":
		a.Message = q.build(dnsmessage.RCodeSuccess, "", add)
	case reason.NoSuchName:
		a.Allow, a.Reason = false, why
		a.Message = q.build(dnsmessage.RCodeNameError, why, nil)
	default:
		a.Allow, a.Reason = false, why
		a.Message = q.build(dnsmessage.RCodeServerFailure, why, nil)
	}
}

func txtRecords(texts []string) records {
	return func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
		for _, t := range texts {
			// Strings of at most 255 bytes (RFC 1035, section 3.3.14).
			var parts []string
			for ; len(t) > 255; t = t[255:] {
				parts = append(parts, t[:255])
			}
			if err := b.TXTResource(h, dnsmessage.TXTResource{TXT: append(parts, t)}); err != nil {
				return err
			}
		}
		return nil
	}
}
