// Package audit is the line that sb-gate writes for each decision, and how to
// read it back.
//
// A line has seven fields with one blank between them, "-" for nothing, then
// any number of key=value words:
//
//	TIME VERDICT GATE NAME ADDRESS REASON RULE [KEY=VALUE]…
//	2026-08-26T06:21:28.110Z allow tcp example.com 104.20.23.154:80 allow-rule example.com
//	2026-08-26T06:21:29.870Z close tcp example.com 104.20.23.154:80 done - up=78 down=1591 ms=212 by=guest
//
// Names come from the guest. Whatever is not in the field's alphabet is written
// \xNN, so that a guest can neither begin a line, nor forge a field, nor reach
// a terminal.
package audit

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sb/lib/reason"
)

// Verdict is the second field.
type Verdict string

const (
	Allow Verdict = "allow" // a flow or a question passed
	Deny  Verdict = "deny"  // it was refused; nothing of the guest's left
	Dial  Verdict = "dial"  // a connection was opened, or tried, that no allow line stands for
	Close Verdict = "close" // a flow ended, with its byte counts
	Note  Verdict = "note"  // about the gate itself, or what became of a credential
)

// Gate is the third field: which check decided.
type Gate string

const (
	DNS   Gate = "dns"   // the guest's question
	TCP   Gate = "tcp"   // a dial
	TLS   Gate = "tls"   // a ClientHello; allowed, one for another name than the dialled one
	HTTP  Gate = "http"  // a request; allowed, the first of a flow for another name
	UDP   Gate = "udp"   // a datagram flow
	ICMP  Gate = "icmp"  // an echo request
	Frame Gate = "frame" // an Ethernet frame
	Look  Gate = "look"  // a question of our own to the host's resolver
	Run   Gate = "run"   // the run itself

	Broker Gate = "broker" // a request for a name that a credential is bound to
)

// TimeFormat is the first field: RFC 3339 in UTC, milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// MaxLine bounds the length of a line in bytes, its newline included.
const MaxLine = 2048

// Line is one line of the log. Empty fields are written "-".
type Line struct {
	Time    time.Time
	Verdict Verdict
	Gate    Gate
	Name    string // host name, as far as one is known
	Address string // address, or address:port; IPv6 in brackets before a port
	Reason  reason.Code
	Rule    string
	Words   []Word
}

// Word is one KEY=VALUE behind the fixed fields. Known keys: up and down
// (payload bytes on the outer socket, from and to the guest), ms (duration),
// by (guest or sb: who caused it), n (how many decisions the line stands for),
// type (a DNS record type), ech (what a probe found: none, offered or unknown).
type Word struct{ Key, Value string }

// Int is a word with a number.
func Int(key string, n int64) Word { return Word{key, strconv.FormatInt(n, 10)} }

// Append appends the line and its newline to b. A field that is too long is cut,
// and the words that do not fit are left out, so that a line always has its
// seven fields.
func (l Line) Append(b []byte) []byte {
	start := len(b)
	b = l.Time.UTC().AppendFormat(b, TimeFormat)
	for i, f := range [...]string{string(l.Verdict), string(l.Gate), l.Name, l.Address, string(l.Reason), l.Rule} {
		b = append(b, ' ')
		b = appendField(b, f, maxField[i])
	}
	for _, w := range l.Words {
		fits := len(b)
		b = append(b, ' ')
		b = appendField(b, w.Key, MaxLine)
		b = append(b, '=')
		b = appendField(b, w.Value, MaxLine)
		if len(b)-start > MaxLine-1 {
			b = b[:fits]
			break
		}
	}
	return append(b, '\n')
}

// MaxName is the bytes of a name that are kept: what a name has at most on the
// wire (RFC 1035, section 3.1).
const MaxName = 255

// maxField bounds each field as it is written, in bytes, the time left out: each
// byte of a name may take four. Together they leave words the room of some
// hundred bytes.
var maxField = [6]int{16, 16, 4 * MaxName, 64, 40, 384}

// Cut returns the line with no more of its name, address and rule than can be
// written of any: for who keeps it, since a guest's name may have any length.
func (l Line) Cut() Line {
	l.Name = l.Name[:min(len(l.Name), MaxName)]
	l.Address = l.Address[:min(len(l.Address), maxField[3])]
	l.Rule = l.Rule[:min(len(l.Rule), maxField[5])]
	return l
}

// Field returns s as a line holds it: a word of the alphabet of fields, "-" for
// nothing.
func Field(s string) string { return string(appendField(nil, s, 4*len(s))) }

// ParseField reads what Field wrote, and no other spelling.
func ParseField(text string) (string, error) {
	s, err := field(text)
	if err == nil && Field(s) != text {
		err = fmt.Errorf("%w: a field in another spelling", errLine)
	}
	return s, err
}

func appendField(b []byte, s string, most int) []byte {
	if s == "" {
		return append(b, '-')
	}
	if s == "-" {
		return append(b, `\x2d`...)
	}
	const hex = "0123456789abcdef"
	most += len(b)
	for i := 0; i < len(s); i++ {
		switch {
		case plain(s[i]) && len(b) < most:
			b = append(b, s[i])
		case !plain(s[i]) && len(b)+4 <= most:
			b = append(b, '\\', 'x', hex[s[i]>>4], hex[s[i]&15])
		default:
			return b
		}
	}
	return b
}

// plain is the alphabet of a field: that of names and rules.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("._*:-/@[]", c) >= 0
}

func (l Line) String() string {
	return strings.TrimSuffix(string(l.Append(nil)), "\n")
}

// Word returns the value of the first word of that key.
func (l Line) Word(key string) string {
	for _, w := range l.Words {
		if w.Key == key {
			return w.Value
		}
	}
	return ""
}

// Count is how many decisions the line stands for: n=, or 1.
func (l Line) Count() int64 {
	n, err := strconv.ParseInt(l.Word("n"), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return n
}

var errLine = errors.New("not an audit line")

// Parse reads one line, with or without its newline, as Append writes it and in
// no other spelling.
func Parse(text []byte) (Line, error) {
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) >= MaxLine {
		return Line{}, fmt.Errorf("%w: longer than %d bytes", errLine, MaxLine)
	}
	f := strings.Split(string(text), " ")
	if len(f) < 7 {
		return Line{}, fmt.Errorf("%w: %d fields of 7", errLine, len(f))
	}
	t, err := time.Parse(TimeFormat, f[0])
	if err != nil {
		return Line{}, fmt.Errorf("%w: %v", errLine, err)
	}
	var v [6]string
	for i := range v {
		if v[i], err = field(f[i+1]); err != nil {
			return Line{}, err
		}
	}
	l := Line{Time: t, Verdict: Verdict(v[0]), Gate: Gate(v[1]), Name: v[2], Address: v[3], Reason: reason.Code(v[4]), Rule: v[5]}
	for _, w := range f[7:] {
		k, val, ok := strings.Cut(w, "=")
		key, err := field(k)
		if !ok || err != nil || key == "" {
			return Line{}, fmt.Errorf("%w: %q is no word", errLine, w)
		}
		value, err := field(val)
		if err != nil {
			return Line{}, err
		}
		l.Words = append(l.Words, Word{key, value})
	}
	if l.String() != string(text) {
		return Line{}, fmt.Errorf("%w: it is spelled another way than lines are", errLine)
	}
	return l, nil
}

func field(s string) (string, error) {
	if s == "-" {
		return "", nil
	}
	if s == "" {
		return "", fmt.Errorf("%w: an empty field", errLine)
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			if !plain(s[i]) {
				return "", fmt.Errorf("%w: byte %#02x in a field", errLine, s[i])
			}
			b.WriteByte(s[i])
			continue
		}
		if len(s) < i+4 || s[i+1] != 'x' {
			return "", fmt.Errorf("%w: a cut escape", errLine)
		}
		n, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil || strings.ToLower(s[i+2:i+4]) != s[i+2:i+4] {
			return "", fmt.Errorf("%w: a bad escape", errLine)
		}
		b.WriteByte(byte(n))
		i += 3
	}
	return b.String(), nil
}
