package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	lookTime = 8 * time.Second // for the host's resolver to answer
	// The resolver's interface does not tell how long an answer is good for. A
	// name is asked for again after keepFound, one that failed after keepFailed.
	keepFound  = 30 * time.Second
	keepFailed = 3 * time.Second
	maxLooks   = 64   // questions to the resolver at a time
	maxKept    = 4096 // answers
)

// upstream is the host's own resolver: its hosts file, its nameservers, its VPN.
type upstream struct {
	budget budget
	report func(wire.Exchange)
	slots  chan struct{}

	mu   sync.Mutex
	kept map[rule.Name]*found
}

// found is what is known of a name, or being asked.
type found struct {
	done  chan struct{} // closed when the fields below are set
	addrs []netip.Addr
	why   reason.Code
	until time.Time
}

func newUpstream(report func(wire.Exchange)) *upstream {
	return &upstream{report: report, slots: make(chan struct{}, maxLooks), kept: map[rule.Name]*found{}}
}

// resolve answers the gate: where is a name now?
func (s *server) resolve(r wire.Resolve) {
	out := wire.Resolved{ID: r.ID, Reason: reason.BadName}
	if name, err := rule.ParseName(r.Name); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		out.Addrs, out.Reason = s.upstream.addrs(ctx, name, s.rules.Load().Budgeted(name))
		out.TTL = uint32(keepFound / time.Second)
	}
	s.send(out)
}

// addrs returns the addresses of a name. budgeted: it counts against the budget
// of new names.
func (u *upstream) addrs(ctx context.Context, name rule.Name, budgeted bool) ([]netip.Addr, reason.Code) {
	u.mu.Lock()
	f := u.kept[name]
	if f == nil || f.over(time.Now()) {
		if budgeted && f == nil && !u.budget.take(name, time.Now()) {
			u.mu.Unlock()
			return nil, reason.ResolveBudget
		}
		f = &found{done: make(chan struct{})}
		u.keep(name, f)
		go u.look(name, f)
	}
	u.mu.Unlock()
	select {
	case <-f.done:
		return f.addrs, f.why
	case <-ctx.Done():
		return nil, reason.NoAnswer
	}
}

// over reports whether an answer is too old. One that is awaited never is.
func (f *found) over(now time.Time) bool {
	select {
	case <-f.done:
		return now.After(f.until)
	default:
		return false
	}
}

// keep remembers an answer and forgets old ones where there are too many; the
// caller holds mu.
func (u *upstream) keep(name rule.Name, f *found) {
	if len(u.kept) >= maxKept {
		now := time.Now()
		for n, old := range u.kept {
			if old.over(now) {
				delete(u.kept, n)
			}
		}
		for n := range u.kept {
			if len(u.kept) < maxKept {
				break
			}
			delete(u.kept, n)
		}
	}
	u.kept[name] = f
}

func (u *upstream) look(name rule.Name, f *found) {
	u.slots <- struct{}{}
	defer func() { <-u.slots }()
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	// The final dot: the name as it is, no search list.
	addrs, err := u.resolver(name).LookupNetIP(ctx, "ip", name.String()+".")
	f.why = lookReason(err)
	f.until = time.Now().Add(keepFailed)
	if err == nil {
		f.addrs, f.why = addrs[:min(len(addrs), wire.MaxAddrs)], reason.AllowRule
		f.until = time.Now().Add(keepFound)
	}
	close(f.done)
}

func lookReason(err error) reason.Code {
	var e *net.DNSError
	if errors.As(err, &e) && e.IsNotFound {
		return reason.NoSuchName
	}
	return reason.NoAnswer
}

// other returns the records of one of the types that a dns: rule opens.
func (u *upstream) other(ctx context.Context, name rule.Name, t dnsmessage.Type, budgeted bool) (records, reason.Code) {
	if budgeted && !u.budget.take(name, time.Now()) {
		return nil, reason.ResolveBudget
	}
	u.slots <- struct{}{}
	defer func() { <-u.slots }()
	r, full := u.resolver(name), name.String()+"."
	var add records
	var err error
	switch t {
	case dnsmessage.TypeTXT:
		var texts []string
		texts, err = r.LookupTXT(ctx, full)
		add = txtRecords(texts[:min(len(texts), maxRecords)])
	case dnsmessage.TypeMX:
		var mx []*net.MX
		mx, err = r.LookupMX(ctx, full)
		add = mxRecords(mx[:min(len(mx), maxRecords)])
	case dnsmessage.TypeSRV:
		var srv []*net.SRV
		_, srv, err = r.LookupSRV(ctx, "", "", full)
		add = srvRecords(srv[:min(len(srv), maxRecords)])
	}
	if err != nil {
		return nil, lookReason(err)
	}
	return add, ""
}

func mxRecords(all []*net.MX) records {
	return func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
		for _, r := range all {
			host, err := dnsmessage.NewName(r.Host)
			if err == nil {
				err = b.MXResource(h, dnsmessage.MXResource{Pref: r.Pref, MX: host})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func srvRecords(all []*net.SRV) records {
	return func(b *dnsmessage.Builder, h dnsmessage.ResourceHeader) error {
		for _, r := range all {
			host, err := dnsmessage.NewName(r.Target)
			if err == nil {
				err = b.SRVResource(h, dnsmessage.SRVResource{Priority: r.Priority, Weight: r.Weight, Port: r.Port, Target: host})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// resolver is the host's, with every conversation counted.
func (u *upstream) resolver(name rule.Name) *net.Resolver {
	return &net.Resolver{PreferGo: ownResolver, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		counted := &counted{Conn: c, report: u.report, x: wire.Exchange{Name: name.String(), Server: address}, began: time.Now()}
		if p, ok := c.(net.PacketConn); ok {
			return packets{counted, p}, nil // the resolver tells UDP by this
		}
		return counted, nil
	}}
}
