//go:build linux

package main

import (
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// fakeDNS is the far side of the dns wire: it answers every name that its rules
// allow with a handle, and knows where the names are that it was told of.
type fakeDNS struct {
	net   manifest.Network
	file  *os.File
	conn  *wire.Conn
	ended chan error

	mu      sync.Mutex
	set     *rule.Set
	where   map[string][]netip.Addr
	fails   map[string]reason.Code
	ttl     uint32 // seconds that an address is good for
	handles []wire.Handle
	met     chan struct{}

	asked  atomic.Int64 // questions of the guest's
	looked atomic.Int64 // dials that asked where a name is

	// lie takes the place of what it would do about a record, if it is set and
	// returns true.
	lie func(d *fakeDNS, rec any) bool
}

func newFakeDNS(n manifest.Network, set *rule.Set, file *os.File) *fakeDNS {
	return &fakeDNS{net: n, file: file, conn: wire.NewConn(file), set: set, ended: make(chan error, 1), met: make(chan struct{}),
		where: map[string][]netip.Addr{}, fails: map[string]reason.Code{}}
}

// run meets the gate and answers it until the wire ends.
func (d *fakeDNS) run() {
	d.ended <- d.answerAll()
}

func (d *fakeDNS) answerAll() error {
	if err := d.conn.Greet(d.list, func(h wire.Handle) error { d.enter(h); return nil }); err != nil {
		return err
	}
	close(d.met)
	for {
		rec, err := d.conn.Next()
		if err != nil {
			return err
		}
		switch rec.(type) {
		case wire.Query:
			d.asked.Add(1)
		case wire.Resolve:
			d.looked.Add(1)
		}
		d.mu.Lock()
		lie := d.lie
		d.mu.Unlock()
		if lie == nil || !lie(d, rec) {
			d.answer(rec)
		}
	}
}

func (d *fakeDNS) answer(rec any) {
	switch rec := rec.(type) {
	case wire.Query:
		d.conn.Send(d.about(rec))
	case wire.Resolve:
		d.conn.Send(d.resolved(rec))
	case wire.Hello:
		d.conn.SendTable(rec.Nonce, d.list())
	}
}

// about is the answer to a question, as sb-dns would give it.
func (d *fakeDNS) about(q wire.Query) wire.Answer {
	var p dnsmessage.Parser
	h, err := p.Start(q.Message)
	a := wire.Answer{ID: q.ID, Reason: reason.DNSMalformed}
	if err != nil {
		return a
	}
	asked, err := p.Question()
	if err != nil {
		return a
	}
	a.Name, a.Type, a.TTL = asked.Name.String()[:asked.Name.Length-1], "a", 60
	name, err := rule.ParseName(a.Name)
	if err != nil {
		return a
	}
	d.mu.Lock()
	v := d.set.Lookup(name)
	d.mu.Unlock()
	a.Allow, a.Reason, a.Rule = v.Allow, v.Reason, v.Rule
	code, ip := dnsmessage.RCodeNameError, netip.Addr{}
	if v.Allow {
		a.Handle = d.handle(name.String())
		code, ip = dnsmessage.RCodeSuccess, a.Handle
	}
	a.Message = reply(h.ID, asked, code, ip)
	return a
}

// reply is a DNS answer with an address, if there is one.
func reply(id uint16, q dnsmessage.Question, code dnsmessage.RCode, ip netip.Addr) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, Response: true, RecursionAvailable: true, RCode: code})
	b.StartQuestions()
	b.Question(q)
	b.StartAnswers()
	if ip.IsValid() {
		b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 60}, dnsmessage.AResource{A: ip.As4()})
	}
	msg, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return msg
}

func (d *fakeDNS) resolved(r wire.Resolve) wire.Resolved {
	d.mu.Lock()
	defer d.mu.Unlock()
	addrs, ok := d.where[r.Name]
	switch {
	case d.fails[r.Name] != "":
		return wire.Resolved{ID: r.ID, Reason: d.fails[r.Name]}
	case !ok:
		return wire.Resolved{ID: r.ID, Reason: reason.NoSuchName}
	}
	return wire.Resolved{ID: r.ID, Reason: reason.AllowRule, TTL: d.ttl, Addrs: addrs}
}

// handle is the address that stands for a name.
func (d *fakeDNS) handle(name string) netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.net.FirstHandle()
	for _, h := range d.handles {
		if h.Name == name {
			return h.Addr
		}
		if !h.Addr.Less(next) {
			next = h.Addr.Next()
		}
	}
	d.handles = append(d.handles, wire.Handle{Name: name, Addr: next})
	return next
}

func (d *fakeDNS) enter(h wire.Handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles = append(d.handles, h)
}

func (d *fakeDNS) list() []wire.Handle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]wire.Handle(nil), d.handles...)
}

// at says where names are from now on.
func (d *fakeDNS) at(name string, addrs ...netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.where[name] = addrs
}

// fail has a name resolve to nothing, for a reason.
func (d *fakeDNS) fail(name string, why reason.Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails[name] = why
}

// lies has lie decide about every record from now on.
func (d *fakeDNS) lies(lie func(d *fakeDNS, rec any) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lie = lie
}
