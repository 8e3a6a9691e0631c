package main

import (
	"context"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/class"
	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/sb-gate/journal"
	"sb/sb-gate/link"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// The bounds of what a guest can make the gate hold.
const (
	maxFlows       = 10240 // TCP connections
	maxRoomy       = 16    // of them, with large buffers
	maxDials       = 256   // of them, still being dialled
	maxDialsNew    = 192   // as long as none to the same destination has come about
	maxDialsEach   = 16    // to one destination
	maxAnswered    = 1024  // destinations that are remembered for it
	maxUDPFlows    = 256
	maxPings       = 32   // echo requests that wait for their answer
	maxQueries     = 1024 // questions in flight to sb-dns
	maxDNSConns    = 8    // of DNS over TCP
	reserveFiles   = 64   // descriptors kept for everything but flows
	proofTime      = 10 * time.Second
	rawProofTime   = time.Second // where unproven bytes may pass, how long to wait for more of a beginning
	dialTime       = 8 * time.Second
	partTime       = 5 * time.Second // for the guest to take what was sent to it before the end
	meetTime       = 5 * time.Second // for the guest to complete its handshake
	resolveTime    = 10 * time.Second
	lingerTime     = 5 * time.Second             // for a server to finish its answers before a refusal follows them
	idleTime       = 2*time.Hour + 4*time.Minute // RFC 5382, REQ-5
	udpIdleTime    = 90 * time.Second
	endTime        = 3 * time.Second // for the last lines of what was open at the end
	hostsRefreshed = 5 * time.Second
)

// gate holds the whole of a sandbox's network.
type gate struct {
	ctx    context.Context // ends with the gate, and with it what waits for something
	net    manifest.Network
	policy atomic.Pointer[policy]
	log    *journal.Log
	names  *names
	dns    *resolver
	wire   *link.Endpoint
	stack  *stack.Stack
	served []io.Closer // the gateway's own services
	hosts  hosts
	flows  *flows
	ping   *pinger
	ech    *echTable // nil: every encrypted hello is refused
	broker *broker
}

// policy is the rules in force. A nil policy refuses everything.
type policy struct {
	set        *rule.Set
	generation uint64
}

// rules returns the set in force.
func (g *gate) rules() *rule.Set {
	if p := g.policy.Load(); p != nil {
		return p.set
	}
	return nil
}

// target is what the guest wants to reach: a name behind a handle, or an
// address that a rule names.
type target struct {
	name rule.Name      // the zero Name: an address
	addr netip.AddrPort // as the guest dialled it
}

// judge decides a dial by the rules alone, before anything is looked up.
func (g *gate) judge(addr netip.AddrPort, p rule.Proto) (target, rule.Verdict) {
	to := target{addr: addr}
	set := g.rules()
	switch {
	case addr.Addr() == g.net.Gateway():
		return to, rule.Verdict{Reason: reason.GatewayPort}
	case g.net.Subnet().Contains(addr.Addr()):
		return to, rule.Verdict{Reason: reason.InsideTheSubnet}
	case g.net.IsHandle(addr.Addr()):
		name, ok := g.names.of(addr.Addr())
		if !ok {
			return to, rule.Verdict{Reason: reason.UnresolvedAddress}
		}
		to.name = name
		return to, set.Dial(name, p, addr.Port())
	}
	return to, set.DialAddr(addr.Addr(), p, addr.Port())
}

// refuse writes the deny line of a dial; at is the address that was refused.
func (g *gate) refuse(gate audit.Gate, to target, at string, v rule.Verdict) {
	g.log.Fold(audit.Line{Verdict: audit.Deny, Gate: gate, Name: to.name.String(), Address: at, Reason: v.Reason, Rule: v.Rule})
}

// hosts caches this host's own addresses, which change with its networks.
type hosts struct {
	at atomic.Pointer[hostsAt]
}

type hostsAt struct {
	host class.Host
	time time.Time
}

// class names the special range that a lies in, this host's own addresses
// included; "" for an ordinary one.
func (h *hosts) class(a netip.Addr) string {
	at := h.at.Load()
	if at == nil || time.Since(at.time) > hostsRefreshed {
		host, err := class.HostAddrs()
		if err != nil {
			return class.ThisHost // in doubt it is ours
		}
		at = &hostsAt{host, time.Now()}
		h.at.Store(at)
	}
	return at.host.Of(a)
}
