package rule

import (
	"fmt"
	"strings"
)

// Name is a host name as it stands on the wire: ASCII, in lower case, without a
// final dot, each label [a-z0-9_-]{1,63} with no "-" at its ends, 253 bytes at
// most. Two names are the same host if they are ==. The zero Name is none, and
// every Set refuses it.
//
// Names come from ParseName and NameFromLabels alone, so that what was judged
// and what is dialled cannot be two spellings.
type Name struct{ s string }

// HostName is the name under which a sandbox reaches its host's own loopback, at
// the ports that a rule names.
const HostName = "host.sb.internal"

// dockerHostName is the same by the name that Docker's users know.
const dockerHostName = "host.docker.internal"

const (
	maxName  = 253 // RFC 1035 §3.1: 255 octets on the wire
	maxLabel = 63  // RFC 1035 §2.3.4
)

func (n Name) String() string { return n.s }

// IsHost says whether n stands for this host's loopback.
func (n Name) IsHost() bool { return n.s == HostName }

// ParseName reads a name as it stands in a TLS ClientHello or an HTTP Host
// field: no address, no port, no final dot, nothing but ASCII.
func ParseName(s string) (Name, error) {
	low := lower(s)
	if f := checkName(low); f != nil {
		return Name{}, f.err("name", s)
	}
	return canonical(low), nil
}

// NameFromLabels reads the name of a DNS question, the root label left out. A
// label is bytes: one that holds a dot is another name than it looks like, and
// is refused as any byte is that a host name cannot have.
func NameFromLabels(labels [][]byte) (Name, error) {
	var b strings.Builder
	for i, l := range labels {
		if b.Len()+len(l) > maxName {
			return Name{}, fmt.Errorf("name of %d labels: longer than %d bytes", len(labels), maxName)
		}
		if strings.IndexByte(string(l), '.') >= 0 {
			return Name{}, fmt.Errorf("name of %d labels: a dot within the label %q", len(labels), l)
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.Write(l)
	}
	return ParseName(b.String())
}

func canonical(low string) Name {
	if low == dockerHostName {
		low = HostName
	}
	// In memory of its own: s may be a part of a request of 64 KiB, and names are
	// kept for as long as a sandbox lives.
	return Name{strings.Clone(low)}
}

// lower lowers ASCII and nothing else: U+212A, the Kelvin sign, stays what it is.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// checkName says what makes s, already in lower case, no host name.
func checkName(s string) *fault {
	switch {
	case s == "":
		return &fault{why: "there is no name"}
	case len(s) > maxName:
		return faultf("the name has %d bytes, at most %d are possible", len(s), maxName)
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if !nameByte(s[i]) {
				return charFault(i, "cannot stand in a host name")
			}
			continue
		}
		if f := checkLabel(s[start:i], start, i == len(s)); f != nil {
			return f
		}
		start = i + 1
	}
	if endsInNumber(s) {
		return &fault{why: "a name whose last label is a number is an address to some programs"}
	}
	return nil
}

func checkLabel(l string, start int, last bool) *fault {
	switch {
	case l == "" && last:
		return charFault(start-1, "at the end: a host name ends in a label")
	case l == "":
		return charFault(start, "has no label before it")
	case len(l) > maxLabel:
		return faultf("the label %q has %d bytes, at most %d are possible", l, len(l), maxLabel)
	case l[0] == '-':
		return charFault(start, "cannot begin a label")
	case l[len(l)-1] == '-':
		return charFault(start+len(l)-1, "cannot end a label")
	}
	return nil
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// endsInNumber says whether s could be taken for an IPv4 address in some
// spelling: inet_aton and browsers read "127.1", "0x7f.1" and "2130706433"
// (WHATWG URL, "ends in a number").
func endsInNumber(s string) bool {
	last := s[strings.LastIndexByte(s, '.')+1:]
	return strings.HasPrefix(last, "0x") || last != "" && strings.Trim(last, "0123456789") == ""
}
