package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"sb/lib/audit"
	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/say"
	"sb/lib/wire"
	"sb/sb-gate/frame"
	"sb/sb-gate/journal"
)

const (
	proveTime   = 10 * time.Second // for all of it
	refusalTime = 5 * time.Second  // for the refusals to come, once sb-dns has answered
)

// nobodys is an address that is given to nobody (RFC 5737, TEST-NET-1).
var nobodys = netip.MustParseAddr("192.0.2.1")

// selfProof is a second gate before the first lets anything in: the same rules and
// handles, on a wire of its own whose far end stands for the guest. What comes
// over that wire is judged as the guest's frames will be.
type selfProof struct {
	g     *gate
	asks  *gate
	name  string
	dials []netip.AddrPort
	far   net.Conn // the guest's end of the wire
	log   *os.File // what the second gate writes
}

// prove asks for a name and dials addresses that must be refused, whatever the
// rules are. The error is that of a boundary that does not hold.
func (g *gate) prove(m *manifest.Manifest) error {
	p, err := g.newProof(m.Rules.Allow)
	if err != nil {
		return fmt.Errorf("prove that the rules hold: %w", err)
	}
	ran := make(chan error, 1)
	go func() { ran <- p.run() }()
	select {
	case err = <-ran:
	case <-time.After(proveTime):
		err = fmt.Errorf("it was not done within %v: sb-dns does not answer", proveTime)
	}
	p.asks.closeStack()
	if lerr := p.asks.log.Close(); err == nil {
		err = lerr
	}
	if err == nil {
		err = p.logged()
	}
	p.far.Close()
	p.log.Close()
	if err != nil {
		return say.WithHint(fmt.Errorf("prove that the rules hold: %w", err), "this is a fault of sb-gate or sb-dns: nothing was let in or out")
	}
	g.log.Record(audit.Line{Verdict: audit.Note, Gate: audit.Run, Name: m.Name, Reason: reason.GateProved,
		Words: []audit.Word{audit.Int("n", int64(1+len(p.dials))), {Key: "by", Value: "sb"}}})
	return nil
}

func (g *gate) newProof(allow []string) (*selfProof, error) {
	var random [8]byte
	rand.Read(random[:])
	// Nothing is below .invalid (RFC 6761), and no rule can be written for all of it.
	p := &selfProof{g: g, name: "sb-" + hex.EncodeToString(random[:]) + ".invalid", dials: g.unreachables(allow)}
	near, far, err := fd.Pair("proof", fd.Dgram)
	if err != nil {
		return nil, err
	}
	defer near.Close()
	defer far.Close()
	if p.far, err = net.FileConn(far); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.log = r
	// What should be let through in error ends before it has left: its context has.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.asks = &gate{ctx: ctx, broker: g.broker, net: g.net, names: g.names, flows: newFlows(), ping: &pinger{last: map[netip.Addr]time.Time{}}, log: journal.New(w, func() {})}
	p.asks.policy.Store(g.policy.Load())
	p.asks.dns = newResolver(p.asks, g.dns.conn)
	if err := p.asks.openWire(near); err != nil {
		return nil, err
	}
	return p, nil
}

// unreachables are dials that no rule can allow, and one that these do not.
func (g *gate) unreachables(allow []string) []netip.AddrPort {
	all := []netip.Addr{g.net.Gateway(), g.net.Guest().Next()}
	last := g.net.Pool.Masked().Addr().As4() // of the pool: it stands for a name when all others do
	for bit := g.net.Pool.Bits(); bit < 32; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	if a := netip.AddrFrom4(last); !g.names.has(a) {
		all = append(all, a)
	}
	if !writtenFor(allow, nobodys) {
		all = append(all, nobodys)
	}
	var dials []netip.AddrPort
	for _, a := range all {
		dials = append(dials, netip.AddrPortFrom(a, proofPort))
	}
	return dials
}

// writtenFor says whether one of the rules is for an address or a range with a
// in it. It reads their text by itself, so as not to ask what is to be proven.
func writtenFor(rules []string, a netip.Addr) bool {
	for _, r := range rules {
		host, _, _ := strings.Cut(r, ":")
		if p, err := netip.ParsePrefix(host); err == nil && p.Contains(a) || host == a.String() {
			return true
		}
	}
	return false
}

// run plays the guest, and sb-dns's reader until the question is answered.
func (p *selfProof) run() error {
	if _, err := p.far.Write(proofQuestion(p.g.net, p.name)); err != nil {
		return err
	}
	for answered := false; !answered; {
		rec, err := p.g.dns.conn.Next()
		if err != nil {
			return fmt.Errorf("the dns wire: %w", err)
		}
		if answered, err = p.take(rec); err != nil {
			return err
		}
	}
	for i, at := range p.dials {
		if _, err := p.far.Write(proofSYN(p.g.net, at, uint16(i))); err != nil {
			return err
		}
	}
	return p.refusals()
}

// take hands a record to whom it is for. A gate that died may have left some.
func (p *selfProof) take(rec any) (answered bool, err error) {
	if a, ok := rec.(wire.Answer); ok && p.asks.dns.waits(a.ID) {
		if a.Allow {
			return true, fmt.Errorf("sb-dns allowed %s", p.name)
		}
		return true, p.asks.dns.handle(rec)
	}
	if err := p.g.dns.handle(rec); err != nil {
		return false, err
	}
	if _, ok := rec.(wire.Hello); ok {
		go p.asks.dns.askAgain()
	}
	return false, nil
}

// refusals waits for an answer to the question that says no, and for a reset of
// each dial.
func (p *selfProof) refusals() error {
	p.far.SetReadDeadline(time.Now().Add(refusalTime))
	missing := map[netip.AddrPort]bool{netip.AddrPortFrom(p.g.net.Gateway(), portDNS): true}
	for _, at := range p.dials {
		missing[at] = true
	}
	for buf := make([]byte, p.g.net.MTU+frame.HeaderLen); len(missing) > 0; {
		n, err := p.far.Read(buf)
		if err != nil {
			return fmt.Errorf("wait for %d refusals: %w", len(missing), err)
		}
		from, refused, ok := proofAnswer(buf[:n])
		if ok && !refused {
			return fmt.Errorf("what must be refused was answered by %s", from)
		}
		if ok {
			delete(missing, from)
		}
	}
	return nil
}

// logged reads what the second gate wrote: refusals alone, each of them.
func (p *selfProof) logged() error {
	missing := map[string]bool{"deny dns " + p.name: true}
	for _, at := range p.dials {
		missing["deny tcp "+at.String()] = true
	}
	for in := bufio.NewScanner(p.log); in.Scan(); {
		line, err := audit.Parse(in.Bytes())
		if err != nil {
			return err
		}
		what := line.Name
		if line.Gate == audit.TCP {
			what = line.Address
		}
		key := fmt.Sprintf("%s %s %s", line.Verdict, line.Gate, what)
		if !missing[key] || !refusesProof[line.Reason] {
			return fmt.Errorf("the gate said %q of what must be refused", line)
		}
		delete(missing, key)
	}
	for key := range missing {
		return fmt.Errorf("the gate did not say %q", key)
	}
	return nil
}

// refusesProof is why the proof may be refused: by the rules and nothing else.
var refusesProof = map[reason.Code]bool{reason.NoAllowRule: true, reason.DenyRule: true, reason.UnresolvedAddress: true, reason.InsideTheSubnet: true, reason.GatewayPort: true}

// proofPort is where the proof dials: the discard service, if anything.
const proofPort = 9
