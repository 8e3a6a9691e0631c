package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"
)

// resolver is the far side of the dns wire: sb-dns, which parses questions and
// knows where a name is. It is trusted for parsing, not for permission.
type resolver struct {
	g    *gate
	conn *wire.Conn
	last atomic.Uint32
	kept kept

	mu       sync.Mutex
	queries  map[uint32]asked
	resolves map[uint32]resolving
}

// asked is a question of the guest's that waits for its answer.
type asked struct {
	query wire.Query
	send  func(message []byte)
	late  *time.Timer // forgets it
}

// resolving is a dial that waits for addresses.
type resolving struct {
	name rule.Name
	got  chan wire.Resolved
}

func newResolver(g *gate, conn *wire.Conn) *resolver {
	r := &resolver{g: g, conn: conn, queries: map[uint32]asked{}, resolves: map[uint32]resolving{}}
	r.kept.byName = map[rule.Name]keptAddrs{}
	// Answers to a gate that died may still come: they must fit no question of
	// this one's.
	var first [4]byte
	rand.Read(first[:])
	r.last.Store(binary.BigEndian.Uint32(first[:]))
	return r
}

// greet learns the handles that stand already.
func (r *resolver) greet() error {
	return r.conn.Greet(r.g.names.list, r.enter)
}

func (r *resolver) enter(h wire.Handle) error {
	name, err := rule.ParseName(h.Name)
	if err != nil {
		return fmt.Errorf("the dns wire: %w", err)
	}
	return r.g.names.enter(h.Addr, name)
}

// read handles what sb-dns sends until the wire ends.
func (r *resolver) read() error {
	for {
		rec, err := r.conn.Next()
		if err == nil {
			err = r.handle(rec)
		}
		if err != nil {
			return fmt.Errorf("the dns wire: %w", err)
		}
	}
}

// handle handles one record of sb-dns's.
func (r *resolver) handle(rec any) error {
	switch rec := rec.(type) {
	case wire.Answer:
		return r.answer(rec)
	case wire.Resolved:
		r.mu.Lock()
		if w, ok := r.resolves[rec.ID]; ok {
			delete(r.resolves, rec.ID)
			w.got <- rec
		}
		r.mu.Unlock()
	case wire.Exchange:
		r.exchange(rec)
	case wire.Hello: // another sb-dns took its place
		if err := r.conn.SendTable(rec.Nonce, r.g.names.list()); err != nil {
			return err
		}
		go r.askAgain() // the one before threw away what it was asked
	default:
		return fmt.Errorf("sb-dns sent a %T", rec)
	}
	return nil
}

// waits says whether a question with that number waits for its answer.
func (r *resolver) waits(id uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.queries[id]
	return ok
}

// query asks sb-dns what to answer to the guest; send gets the answer's bytes,
// once, or never if they are late. False: too many questions are in flight.
func (r *resolver) query(q wire.Query, send func([]byte)) (id uint32, ok bool) {
	q.ID = r.last.Add(1)
	r.mu.Lock()
	ok = len(r.queries) < maxQueries
	if ok {
		r.queries[q.ID] = asked{q, send, time.AfterFunc(dnsAnswerTime, func() { r.forget(q.ID) })}
	}
	r.mu.Unlock()
	if ok && r.conn.Send(q) != nil {
		r.forget(q.ID)
	}
	return q.ID, ok
}

// askAgain sends every question that waits once more.
func (r *resolver) askAgain() {
	r.mu.Lock()
	var all []any
	for id, w := range r.resolves {
		all = append(all, wire.Resolve{ID: id, Name: w.name.String()})
	}
	for _, a := range r.queries {
		all = append(all, a.query)
	}
	r.mu.Unlock()
	for _, rec := range all {
		if r.conn.Send(rec) != nil {
			return
		}
	}
}

// forget gives up waiting for an answer.
func (r *resolver) forget(id uint32) {
	r.take(id)
}

// take ends the waiting for an answer and returns who gets it, nil for nobody.
// A timer that is stopped holds nothing: there are as many as questions in flight.
func (r *resolver) take(id uint32) func(message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.queries[id]
	if ok {
		a.late.Stop()
		delete(r.queries, id)
	}
	return a.send
}

// answer passes an answer to the guest: after the handle in it was entered, and
// only if the rules here say so too.
func (r *resolver) answer(a wire.Answer) error {
	send := r.take(a.ID)
	line := audit.Line{Verdict: audit.Deny, Gate: audit.DNS, Name: a.Name, Reason: known(a.Reason), Rule: a.Rule}
	if a.Type != "" && a.Type != "a" {
		line.Words = []audit.Word{{Key: "type", Value: a.Type}}
	}
	if a.Allow {
		line.Verdict = audit.Allow
		v, err := r.confirm(a)
		if err != nil {
			return err
		}
		if !v.Allow {
			// The rules were replaced between the question and its answer.
			line.Verdict, line.Reason, line.Rule, send = audit.Deny, v.Reason, v.Rule, nil
		}
		if a.Handle.IsValid() {
			line.Address = a.Handle.String()
		}
	}
	r.g.log.Fold(line)
	if send != nil && len(a.Message) > 0 {
		send(a.Message)
	}
	return nil
}

// confirm judges an allowed name again and enters its handle.
func (r *resolver) confirm(a wire.Answer) (rule.Verdict, error) {
	name, err := rule.ParseName(a.Name)
	if err != nil {
		return rule.Verdict{}, err
	}
	if !a.Handle.IsValid() {
		v := r.g.rules().Lookup(name)
		if !v.Allow {
			v = r.g.rules().LookupOther(name)
		}
		return v, nil
	}
	v := r.g.rules().Lookup(name)
	if !v.Allow {
		return v, nil
	}
	return v, r.g.names.enter(a.Handle, name)
}

// exchange writes the lines of a question that sb-dns asked the host's resolver.
func (r *resolver) exchange(x wire.Exchange) {
	line := audit.Line{Verdict: audit.Allow, Gate: audit.Look, Name: x.Name, Address: x.Server, Reason: x.Reason,
		Words: []audit.Word{audit.Int("up", x.Up), audit.Int("down", x.Down), audit.Int("ms", x.Millis), {Key: "by", Value: "sb"}}}
	r.g.log.Record(line)
}

// resolve asks where a name is now.
func (r *resolver) resolve(ctx context.Context, name rule.Name) ([]netip.Addr, reason.Code) {
	if addrs := r.kept.get(name, time.Now()); addrs != nil {
		return addrs, reason.AllowRule
	}
	id := r.last.Add(1)
	w := resolving{name, make(chan wire.Resolved, 1)}
	r.mu.Lock()
	r.resolves[id] = w
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.resolves, id)
		r.mu.Unlock()
	}()
	if err := r.conn.Send(wire.Resolve{ID: id, Name: name.String()}); err != nil {
		return nil, reason.NoAnswer
	}
	select {
	case rec := <-w.got:
		switch {
		case rec.Reason != reason.AllowRule:
			return nil, known(rec.Reason)
		case len(rec.Addrs) == 0:
			return nil, reason.NoSuchName
		}
		r.kept.put(name, rec.Addrs, time.Duration(rec.TTL)*time.Second, time.Now())
		return rec.Addrs, rec.Reason
	case <-ctx.Done():
		return nil, reason.NoAnswer
	}
}

// known is a reason that sb-dns gave, if it is one.
func known(why reason.Code) reason.Code {
	if _, ok := reason.Explain(why); ok {
		return why
	}
	return reason.NoAnswer
}
