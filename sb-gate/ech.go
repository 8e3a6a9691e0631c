package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"
)

// Browsers send every server a ClientHello that looks encrypted (GREASE, RFC
// 9849, section 6.2), and nobody but the server can tell it from a true one. A
// server that could decrypt it says so to whoever sends it one that it cannot: it
// answers with its configurations (section 7.1). That is what a probe asks for;
// where there are none, no name within the guest's hello can be found by the
// server.

// The bounds of what is asked about ECH.
const (
	echTime     = 5 * time.Second  // for one probe, its wait for a slot included
	echLeave    = time.Second      // for the server to end a probe's connection
	echKept     = 5 * time.Minute  // an answer counts
	echRetried  = 20 * time.Second // it counts that there was none
	maxEchKnown = 1024             // servers
	maxProbes   = 16               // at a time, of the descriptors in reserve
)

// offer is what a server was found to do. The zero value refuses.
type offer int

const (
	offerUnknown offer = iota
	offerMade          // it can decrypt hellos
	offerNone
)

func (o offer) String() string { return [...]string{"unknown", "offered", "none"}[o] }

// echServer is whom a probe asks: what stands at an address may differ by name.
type echServer struct {
	at   netip.AddrPort
	name rule.Name
}

type echAnswer struct {
	offer offer
	until time.Time     // the zero Time: it is being asked
	done  chan struct{} // closed when the fields above are set
}

// echTable remembers the answers.
type echTable struct {
	now   func() time.Time
	slots chan struct{} // one for each probe that runs

	mu    sync.Mutex
	known map[echServer]*echAnswer
}

func newECHTable() *echTable {
	return &echTable{now: time.Now, slots: make(chan struct{}, maxProbes), known: map[echServer]*echAnswer{}}
}

// ask returns what is known of a server, from a probe if need be: one at a time,
// for which all wait that ask meanwhile.
func (t *echTable) ask(s echServer, probe func() offer) offer {
	t.mu.Lock()
	a := t.known[s]
	if a != nil && (a.until.IsZero() || t.now().Before(a.until)) {
		t.mu.Unlock()
		<-a.done
		return a.offer
	}
	if a == nil && !t.room() {
		t.mu.Unlock()
		return offerUnknown
	}
	a = &echAnswer{done: make(chan struct{})}
	t.known[s] = a
	t.mu.Unlock()
	got := probe()
	t.mu.Lock()
	defer t.mu.Unlock()
	a.offer, a.until = got, t.now().Add(echKept)
	if got == offerUnknown {
		a.until = t.now().Add(echRetried)
	}
	close(a.done)
	return got
}

// room makes room for one more, if need be by forgetting what would be forgotten
// next. False: all are being asked. The caller holds mu.
func (t *echTable) room() bool {
	if len(t.known) < maxEchKnown {
		return true
	}
	var next echServer
	found := false
	for s, a := range t.known {
		if !a.until.IsZero() && (!found || a.until.Before(t.known[next].until)) {
			next, found = s, true
		}
	}
	delete(t.known, next)
	return found
}

// readable says whether the server that the flow leads to can find no other name
// in an encrypted hello than the one outside, which has been judged.
func (f *flow) readable(name rule.Name) bool {
	if name == (rule.Name{}) {
		return false
	}
	return f.g.ech.ask(echServer{f.outer.at, name}, func() offer { return f.probeECH(name) }) == offerNone
}

// probeECH asks the server that the flow leads to, as long as there is the flow:
// the rules may have ended it meanwhile. Nothing of the guest's is in it but the
// name that its hello says in clear.
func (f *flow) probeECH(name rule.Name) offer {
	g, to := f.g, place{f.outer.at, f.verdict}
	ctx, cancel := context.WithTimeout(g.ctx, echTime)
	defer cancel()
	select {
	case g.ech.slots <- struct{}{}:
		defer func() { <-g.ech.slots }()
	case <-ctx.Done():
		return offerUnknown
	}
	if f.isOver() {
		return offerUnknown
	}
	began := time.Now()
	by := audit.Word{Key: "by", Value: "sb"}
	line := audit.Line{Verdict: audit.Dial, Gate: audit.TCP, Name: name.String(), Address: to.at.String(), Words: []audit.Word{by}}
	r := g.dialOne(ctx, to)
	if r.conn == nil {
		line.Reason = r.why
		g.log.Record(line)
		return offerUnknown
	}
	line.Verdict, line.Reason, line.Rule = audit.Allow, reason.AllowRule, to.verdict.Rule
	got, why, end := offerUnknown, reason.AuditUnavailable, r.conn.cut
	if g.log.Allow(line) {
		stop := context.AfterFunc(ctx, func() { r.conn.conn.SetDeadline(past) })
		defer stop()
		got, why = r.conn.offersECH(name), reason.Reset
		if r.conn.leave() {
			why, end = reason.Done, r.conn.close
		}
	} else {
		line.Verdict, line.Reason, line.Rule = audit.Dial, why, ""
		g.log.Record(line)
	}
	up, down := end()
	line.Verdict, line.Reason, line.Rule = audit.Close, why, ""
	line.Words = []audit.Word{audit.Int("up", up), audit.Int("down", down), audit.Int("ms", time.Since(began).Milliseconds()), by, {Key: "ech", Value: got.String()}}
	g.log.Record(line)
	return got
}

// offersECH does a handshake whose hello is encrypted to a key that nobody has. A
// server that ends it in any other way than by answering to what stands outside
// leaves the question open, one without TLS 1.3 too: it may lack that for this
// name alone, and have it for those within.
func (c *outerConn) offersECH(name rule.Name) offer {
	err := tls.Client(counted{c.conn, c}, &tls.Config{
		ServerName: name.String(), MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
		EncryptedClientHelloConfigList: madeUpECH(name.String()),
		// Nothing is said to the server, so it need not prove who it is.
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil },
	}).Handshake()
	var rejected *tls.ECHRejectionError
	switch {
	case !errors.As(err, &rejected):
		return offerUnknown
	case rejected.RetryConfigList != nil:
		return offerMade
	}
	return offerNone
}

// leave says the end and waits a little for the server's, so that what it still
// said is counted. False: it has not come.
func (c *outerConn) leave() bool {
	late := time.AfterFunc(echLeave, func() { c.conn.SetDeadline(past) })
	defer late.Stop()
	err := c.closeWrite()
	for err == nil {
		err = c.next(func([]byte) error { return nil })
	}
	return err == io.EOF
}

// counted is the connection as crypto/tls wants it, read and written where the
// bytes are counted.
type counted struct {
	net.Conn
	outer *outerConn
}

func (c counted) Read(b []byte) (int, error)  { return c.outer.Read(b) }
func (c counted) Write(b []byte) (int, error) { return c.outer.Write(b) }

// madeUpECH is a list of one ECHConfig (RFC 9849, section 4), with a random key:
// any 32 bytes are one of X25519.
func madeUpECH(public string) []byte {
	b := []byte{0xfe, 0x0d, 0, 0, 0, 0, 0x20, 0, 32} // version, length, config_id, DHKEM(X25519), the key's length
	b = append(b, make([]byte, 32)...)
	rand.Read(b[9:])
	rand.Read(b[4:5])
	b = append(b, 0, 4, 0, 1, 0, 1) // HKDF-SHA256, AES-128-GCM
	b = append(b, 0, byte(len(public)))
	b = append(append(b, public...), 0, 0) // no extensions
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}
