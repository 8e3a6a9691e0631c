package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"sb/lib/class"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/say"
)

// question is one host that was asked about.
type question struct {
	text  string     // as it was given
	name  rule.Name  // or
	addr  netip.Addr // an address as the guest would dial it
	other bool       // dns:HOST, its TXT, SRV and MX records
	proto rule.Proto // ICMP where no port is given: a bare rule is needed, as for a ping
	port  uint16
	at    netip.Addr // what follows "@": where the name resolves to
}

// ask reads HOST[:PORT][/udp][@ADDRESS] or dns:HOST. As in DNS, one final dot of
// a name is taken.
func ask(text string) (question, error) {
	q := question{text: text, proto: rule.ICMP}
	if strings.Contains(text, "://") {
		return q, say.WithHint(say.Usage("host %q is a URL", text), "ask for the host alone")
	}
	host, at, resolved := strings.Cut(text, "@")
	if resolved {
		var err error
		if q.at, err = netip.ParseAddr(at); err != nil {
			return q, say.Usage("host %q: what follows the @ is no address", text)
		}
	}
	if host, q.other = strings.CutPrefix(host, "dns:"); !q.other {
		var err error
		if host, err = q.takePort(host); err != nil {
			return q, say.Usage("host %q: %w", text, err)
		}
		q.addr = address(host)
	}
	if resolved && (q.other || q.addr.IsValid()) {
		return q, say.Usage("host %q: only a name resolves to what follows an @", text)
	}
	if q.addr.IsValid() {
		return q, nil
	}
	var err error
	q.name, err = rule.ParseName(strings.TrimSuffix(host, "."))
	return q, err
}

// takePort takes :PORT and /udp off.
func (q *question) takePort(text string) (host string, err error) {
	host, isUDP := strings.CutSuffix(text, "/udp")
	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || address(host).IsValid() {
		if isUDP {
			return "", errors.New("/udp needs a port before it")
		}
		return host, nil
	}
	host, port := host[:colon], host[colon+1:]
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", fmt.Errorf("%q is no port", port)
	}
	q.port, q.proto = uint16(n), rule.TCP
	if isUDP {
		q.proto = rule.UDP
	}
	return host, nil
}

// address reads an address, an IPv6 one with or without brackets. The zero Addr
// is none.
func address(s string) netip.Addr {
	inner, open := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	a, err := netip.ParseAddr(inner)
	if err != nil || open != closed || open && a.Is4() {
		return netip.Addr{}
	}
	return a
}

func (q question) judge(s *rule.Set) (v rule.Verdict, admits []string) {
	switch {
	case q.other:
		if v = s.LookupOther(q.name); v.Allow {
			return v, []string{"txt", "srv", "mx"}
		}
		return v, nil
	case q.addr.IsValid():
		v = s.DialAddr(q.addr, q.proto, q.port)
	case q.at.IsValid():
		v = s.Reach(q.name, q.at, class.Of(q.at), q.proto, q.port)
	default:
		v = s.Dial(q.name, q.proto, q.port)
	}
	return v, v.Admits(q.proto, q.port)
}

// suggest is the rule that would allow what v refused, "" if there is none.
func (q question) suggest(v rule.Verdict) string {
	if v.Allow {
		return ""
	}
	target := q.name.String()
	if q.addr.IsValid() {
		target = q.addr.String()
	}
	if q.other && v.Reason == reason.NoAllowRule {
		return rule.Suggest(target, q.proto, q.port, reason.DNSType, q.at)
	}
	return rule.Suggest(target, q.proto, q.port, v.Reason, q.at)
}

// allowedAt explains a refusal that comes from asking without a port where a rule
// has one. "" if it does not.
func (q question) allowedAt(s *rule.Set, v rule.Verdict) string {
	if q.port != 0 || q.other || v.Reason != reason.NoAllowRule {
		return ""
	}
	if q.addr.IsValid() {
		return "a rule allows it at a port only; ask for it with the port"
	}
	if by := s.Lookup(q.name); by.Allow {
		return fmt.Sprintf("%s allows it at that port only; ask for it with the port", by.Rule)
	}
	return ""
}
