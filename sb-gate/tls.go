package main

import (
	"context"
	"slices"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/sb-gate/hello"
)

// alert is a fatal access_denied (RFC 8446, section 6): a client that was
// refused says so, instead of a puzzle about a broken connection.
var alert = []byte{21, 3, 3, 0, 2, 2, 49}

// serveTLS lets a TLS flow through if its hello proves the name.
func (f *flow) serveTLS(got first) {
	why, by := f.provesTLS(got.hello)
	if why != "" {
		f.denyLine(audit.TLS, why, got.hello.Name.String(), by)
		f.answer(why, alert)
		return
	}
	if f.g.broker.bound[got.hello.Name] {
		f.serveBroker(got)
		return
	}
	if !f.allow(true) || !f.listOthers(audit.TLS) {
		return
	}
	a := &answer{f: f, served: make(chan bool, 1)}
	down := make(chan error, 1)
	go func() {
		growStack()
		err := f.passDownBy(a.passSome)
		close(a.served) // what it has not told by now is that the server has not
		down <- err
	}()
	err := f.passHello(got, a.served)
	f.settle(err, <-down)
}

// answer tells from a server's first bytes whether it took the hello.
type answer struct {
	f      *flow
	began  []byte
	told   bool
	served chan bool // told once, before the guest can know it
}

// passSome passes what the server has sent.
func (a *answer) passSome() error {
	if a.told {
		return a.f.passAnswered()
	}
	return a.f.outer.next(func(b []byte) error {
		a.began = append(a.began, b[:min(len(b), hello.MaxAnswer)]...)
		if served, more := hello.Served(a.began); !more {
			a.told, a.began = true, nil
			a.served <- served
		}
		return a.f.down(b)
	})
}

// provesTLS decides whether a hello may pass. One that is encrypted may where the
// name outside may, the sandbox says so and the server has no use for it.
func (f *flow) provesTLS(h hello.Hello) (reason.Code, string) {
	if h.Encrypted && f.g.ech == nil {
		return reason.SNIEncrypted, ""
	}
	why, by := f.proves(h.Name, proofTLS)
	if why == "" && h.Encrypted && !f.readable(h.Name) {
		return reason.SNIEncrypted, ""
	}
	return why, by
}

// passHello passes the first hello out, and then what follows as long as it is
// no second hello that says otherwise. What is held back when the guest ends is
// the beginning of one, and goes nowhere.
func (f *flow) passHello(got first, served <-chan bool) error {
	watch := hello.NewWatch(got.hello)
	if err := f.up(got.bytes[:got.hello.Size]); err != nil {
		f.reset(reason.Reset)
		return err
	}
	rest := got.bytes[got.hello.Size:]
	buf := make([]byte, 4096)
	for {
		pass, why := watch.Next(rest)
		if why != "" {
			f.deny(audit.TLS, why, "", "")
			return refusal{why}
		}
		if err := f.up(pass); err != nil {
			f.reset(reason.Reset)
			return err
		}
		switch {
		case watch.Over():
			return f.passUp(nil)
		case watch.Waits():
			watch.Answered(isServed(served))
			rest, served = nil, nil
			continue
		}
		n, err := f.guest.Read(buf)
		if err != nil {
			// The end, or an error that passUp sees too.
			return f.passUp(nil)
		}
		rest = buf[:n]
		select {
		case s := <-served:
			watch.Answered(s)
			served = nil
		default:
		}
	}
}

// isServed waits for the server's answer to a hello, as long as a guest may take
// for its own. Without one, the server has not taken it.
func isServed(served <-chan bool) bool {
	late := time.NewTimer(proofTime)
	defer late.Stop()
	select {
	case s := <-served:
		return s
	case <-late.C:
		return false
	}
}

type refusal struct{ why reason.Code }

func (r refusal) Error() string { return string(r.why) }

// proof is how a protocol words the ways in which a name is not proven.
type proof struct{ absent, denied, mismatch reason.Code }

var (
	proofTLS  = proof{reason.SNIAbsent, reason.SNIDenied, reason.SNIMismatch}
	proofHTTP = proof{reason.HostAbsent, reason.HostDenied, reason.HostMismatch}
)

// proves decides whether a name that the guest's bytes carry may pass on this
// flow: the name behind the handle, or an allowed one that is where the flow
// leads. "" means that it may; else the reason and the rule.
func (f *flow) proves(n rule.Name, p proof) (reason.Code, string) {
	isName := f.to.name != rule.Name{}
	switch {
	case n == rule.Name{} && isName:
		return p.absent, ""
	case n == rule.Name{}, isName && n == f.to.name:
		return "", ""
	}
	if !f.carries(n) {
		return reason.NameBudget, ""
	}
	v := f.g.rules().Dial(n, rule.TCP, f.to.addr.Port())
	switch {
	case v.Reason == reason.DenyRule:
		return v.Reason, v.Rule
	case !v.Allow:
		return p.denied, ""
	}
	ctx, cancel := context.WithTimeout(f.g.ctx, resolveTime)
	defer cancel()
	places, _ := f.g.places(ctx, target{name: n, addr: f.to.addr}, rule.TCP)
	i := slices.IndexFunc(places, func(p place) bool { return p.at == f.outer.at })
	if i < 0 {
		return p.mismatch, ""
	}
	f.allowedBy(n, places[i].verdict.Rule)
	return "", ""
}
