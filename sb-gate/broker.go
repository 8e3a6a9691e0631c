package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/binding"
	"sb/lib/fd"
	"sb/lib/handover"
	"sb/lib/reason"
	"sb/lib/rule"
)

// The bounds of what is handed over to sb-broker.
const (
	maxHanded  = 512              // connections
	brokerTime = 30 * time.Second // for its first byte, or its end
	lateTime   = time.Second      // for an end record, when the end itself has come
)

// broker is the wire to sb-broker and the connections that it holds. The gate
// moves their guest's side between the stack and a socket pair; their outer half
// is the broker's, and the gate's only to count and to cut.
type broker struct {
	wire  *handover.Wire     // nil: there is none, and bound names are refused
	bound map[rule.Name]bool // nil: no name is

	mu    sync.Mutex
	next  uint64 // the last id; a gate that takes another's place begins elsewhere
	flows map[uint64]*handed
}

// handed is one connection that sb-broker holds.
type handed struct {
	f    *flow
	end  chan reason.Code // its end record
	conn *net.UnixConn    // the near end of the pair
}

// newBroker reads which names credentials are bound to.
func newBroker(credentials []binding.Binding, wire *handover.Wire) (*broker, error) {
	b := &broker{wire: wire, next: rand.Uint64(), flows: map[uint64]*handed{}, bound: map[rule.Name]bool{}}
	for _, c := range credentials {
		for _, h := range c.Hosts {
			name, err := rule.ParseName(h)
			if err != nil {
				return nil, err
			}
			b.bound[name] = true
		}
	}
	return b, nil
}

// openBroker reads the bindings and takes over the wire, if there is one.
func (g *gate) openBroker(credentials []binding.Binding, file *os.File) (err error) {
	var wire *handover.Wire
	if file != nil {
		if wire, err = handover.New(file); err != nil {
			return err
		}
	}
	g.broker, err = newBroker(credentials, wire)
	return err
}

// read takes what sb-broker says, until the wire ends. Records about connections
// of a gate that died are about none of ours.
func (b *broker) read() error {
	for {
		rec, err := b.wire.Next()
		if err != nil {
			return err
		}
		switch rec := rec.(type) {
		case handover.Say:
			if h := b.of(rec.ID); h != nil {
				h.f.say(rec)
			}
		case handover.End:
			if h := b.of(rec.ID); h != nil {
				select {
				case h.end <- rec.Reason:
				default:
				}
			}
		case handover.Conn:
			rec.Guest.Close()
			rec.Upstream.Close()
			return errors.New("sb-broker hands a connection to the gate")
		}
	}
}

func (b *broker) of(id uint64) *handed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flows[id]
}

// hand gives a flow to sb-broker, or says why it cannot be.
func (b *broker) hand(f *flow, name rule.Name) (*handed, uint64, reason.Code) {
	near, far, err := fd.Pair("guest", fd.Stream)
	if err != nil {
		return nil, 0, reason.DescriptorsOut
	}
	defer far.Close()
	conn, err := unixConn(near)
	if err != nil {
		return nil, 0, reason.DescriptorsOut
	}
	h := &handed{f: f, end: make(chan reason.Code, 1), conn: conn}
	b.mu.Lock()
	if len(b.flows) >= maxHanded {
		b.mu.Unlock()
		conn.Close()
		return nil, 0, reason.FlowBudget
	}
	b.next++
	id := b.next
	b.flows[id] = h
	b.mu.Unlock()
	f.outer.handed.Store(true)
	sent := errors.New("the connection is over")
	f.outer.raw.Control(func(outer uintptr) {
		sent = b.wire.Hand(id, name.String(), f.outer.at, int(far.Fd()), int(outer))
	})
	if sent != nil {
		b.leave(id)
		conn.Close()
		return nil, 0, reason.BrokerDied
	}
	return h, id, ""
}

func (b *broker) leave(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.flows, id)
}

func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// serveBroker has sb-broker serve a flow whose hello is for a bound name. Without
// one the flow is refused: it would reach the server without what it must have,
// or with what the guest made up for it.
func (f *flow) serveBroker(got first) {
	b, name := f.g.broker, got.hello.Name
	if b.wire == nil {
		f.denyLine(audit.Broker, reason.BrokerAbsent, name.String(), "")
		f.answer(reason.BrokerAbsent, alert)
		return
	}
	if !f.allow(true) || !f.listOthers(audit.TLS) {
		return
	}
	h, id, why := b.hand(f, name)
	if why != "" {
		f.denyLine(audit.Broker, why, name.String(), "")
		f.answer(why, alert)
		return
	}
	defer b.leave(id)
	defer h.conn.Close()
	if !f.hold(h.conn) {
		return
	}
	go h.passUp(got.bytes)
	why, err := h.passDown()
	switch {
	case err != nil:
		f.reset(reason.Reset)
	case why == reason.BrokerDied:
		f.denyLine(audit.Broker, why, name.String(), "")
		f.reset(why)
	case why == reason.Done:
		f.guest.CloseWrite()
		f.outer.awaitEnd()
		f.finish(why)
	default: // the broker has told the guest
		f.answer(why, nil)
	}
}

// hold has the end of the flow end conn too. False: it has come.
func (f *flow) hold(conn *net.UnixConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = conn
	return !f.over
}

// passUp moves what the guest says to sb-broker. That one ends the connection
// when it wants no more of it.
func (h *handed) passUp(held []byte) {
	write := func(b []byte) error {
		h.f.touch()
		_, err := h.conn.Write(b)
		return err
	}
	err := write(held)
	if err == nil {
		err = h.f.guest.pass(write)
	}
	if err == nil {
		h.conn.CloseWrite()
		return
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Net == guestNet {
		h.f.reset(reason.Reset) // by the guest
	}
}

// passDown moves what sb-broker says to the guest, and returns how it ended the
// connection. An error is the guest's.
func (h *handed) passDown() (reason.Code, error) {
	h.conn.SetReadDeadline(time.Now().Add(brokerTime))
	buf := make([]byte, 32<<10)
	for {
		n, err := h.conn.Read(buf)
		if n > 0 {
			h.conn.SetReadDeadline(time.Time{})
			h.f.touch()
			if _, err := h.f.guest.Write(buf[:n]); err != nil {
				return "", err
			}
		}
		if err != nil {
			return h.ending(err), nil
		}
	}
}

// ending waits for the word on how it ended. It was sent before the end came; a
// broker that died has sent none.
func (h *handed) ending(err error) reason.Code {
	late := time.NewTimer(lateTime)
	defer late.Stop()
	if err != io.EOF && os.IsTimeout(err) {
		return reason.BrokerDied
	}
	select {
	case why := <-h.end:
		return why
	case <-late.C:
		return reason.BrokerDied
	}
}

// say writes what sb-broker says about the flow. What it says of one that is over
// it did before.
func (f *flow) say(s handover.Say) {
	line := f.line(s.Verdict, s.Reason)
	line.Gate, line.Rule = audit.Broker, s.What
	f.g.log.Fold(line)
}
