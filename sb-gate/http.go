package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/sb-gate/http1"
)

// serveHTTP lets HTTP/1 requests through, each of which must be for a host that
// is allowed and is where the flow leads. Nothing of a request goes out before
// its head was judged.
func (f *flow) serveHTTP(held []byte) {
	in := bufio.NewReader(io.MultiReader(bytes.NewReader(held), f.guest))
	req, host, why, by := f.readRequest(in)
	switch {
	case why != "":
		f.denyLine(audit.HTTP, why, host, by)
		f.answer(why, f.forbidden(why, host))
		return
	case req == nil:
		f.reset(reason.Reset)
		return
	case !f.allow():
		return
	}
	if req.Upgrade != "" {
		f.upgrade(req, in)
		return
	}
	down := make(chan error, 1)
	go func() { down <- f.passDown() }()
	f.passRequests(req, in, down)
}

// passRequests passes req and those that follow it, until the guest ends or one
// of them is refused.
func (f *flow) passRequests(req *http1.Request, in *bufio.Reader, down chan error) {
	for {
		if err := f.pass(req, in); err != nil {
			var r http1.Refused
			if errors.As(err, &r) {
				f.denyLine(audit.HTTP, r.Code, req.Host, "")
			}
			f.reset(reason.Reset)
			<-down
			return
		}
		next, host, why, by := f.readRequest(in)
		switch {
		case why == "" && next != nil && next.Upgrade != "":
			why = reason.HTTPUpgrade // only the first answer can be told from the others
			fallthrough
		case why != "":
			f.refuseLater(why, host, by, down)
			return
		case next == nil:
			f.settle(f.outer.CloseWrite(), <-down)
			return
		}
		req = next
	}
}

func (f *flow) pass(req *http1.Request, in *bufio.Reader) error {
	out := outerWriter{f}
	if _, err := out.Write(req.Head); err != nil {
		return err
	}
	return req.Body(out, in)
}

// refuseLater refuses a request that follows others on its connection: the
// server's answers to those come first. It is told that no more requests come;
// when it has answered and ended, the refusal follows.
func (f *flow) refuseLater(why reason.Code, host, by string, down chan error) {
	f.denyLine(audit.HTTP, why, host, by)
	f.parting.Store(true)
	f.outer.CloseWrite()
	select {
	case err := <-down:
		if err == nil {
			f.answer(why, f.forbidden(why, host))
		}
	case <-time.After(lingerTime):
	}
	f.reset(why)
}

// readRequest reads a request's head and judges it. A nil request without a
// reason means that the guest has ended.
func (f *flow) readRequest(in *bufio.Reader) (req *http1.Request, host string, why reason.Code, by string) {
	req, err := http1.Read(in)
	var r http1.Refused
	switch {
	case errors.As(err, &r):
		return nil, "", r.Code, ""
	case err != nil:
		return nil, "", "", ""
	}
	host, why, by = f.checkHost(req.Host)
	if why == "" && req.Upgrade != "" {
		why = checkUpgrade(req.Upgrade)
	}
	if why != "" {
		return nil, host, why, by
	}
	return req, host, "", ""
}

// checkUpgrade lets websocket and Docker's raw streams through: they stay with
// the server that was judged. HTTP/2 would carry other hosts.
func checkUpgrade(protocol string) reason.Code {
	switch {
	case protocol == "websocket" || protocol == "tcp":
		return ""
	case strings.Contains(protocol, "h2"):
		return reason.HTTP2Cleartext
	}
	return reason.HTTPUpgrade
}

// checkHost judges the Host of a request: a name as in a ClientHello, or the
// very address that was dialled. Its port, if it has one, is the dialled one.
func (f *flow) checkHost(text string) (host string, why reason.Code, by string) {
	host, port := text, ""
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, port = text[:i], text[i+1:]
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return host, reason.HTTPMalformed, ""
		}
		if uint16(n) != f.to.addr.Port() {
			return host, reason.HostMismatch, ""
		}
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		if (f.to.name == rule.Name{}) && a.Unmap() == f.at.Addr() {
			return host, "", ""
		}
		return host, reason.HostMismatch, ""
	}
	name, err := rule.ParseName(host)
	if err != nil {
		return host, reason.HTTPMalformed, ""
	}
	why, by = f.proves(name, proofHTTP)
	return name.String(), why, by
}

// forbidden is the gate's own answer, with the rule that would allow it.
func (f *flow) forbidden(why reason.Code, host string) []byte {
	target := host
	if target == "" {
		target = f.to.name.String()
	}
	fix := ""
	if r := rule.Suggest(target, rule.TCP, f.to.addr.Port(), why, f.at.Addr()); r != "" {
		fix = "To allow it: --allow " + r
	}
	return http1.Forbidden(why, host, fix)
}

// upgrade passes a request that asks for another protocol and waits for its
// answer: after a 101 everything passes as it is, else HTTP goes on. The guest
// may not say more before it knows.
func (f *flow) upgrade(req *http1.Request, in *bufio.Reader) {
	if err := f.pass(req, in); err != nil {
		f.reset(reason.Reset)
		return
	}
	if in.Buffered() > 0 {
		f.deny(audit.HTTP, reason.HTTPUpgrade, req.Host, "")
		return
	}
	answers := bufio.NewReader(f.outer)
	switched, err := http1.Switched(guestWriter{f}, answers)
	if err != nil {
		f.reset(reason.Reset)
		return
	}
	down := make(chan error, 1)
	go func() { down <- f.passDownFrom(answers) }()
	if switched {
		f.settle(f.passUp(nil), <-down)
		return
	}
	next, host, why, by := f.readRequest(in)
	switch {
	case why != "":
		f.refuseLater(why, host, by, down)
	case next == nil:
		f.settle(f.outer.CloseWrite(), <-down)
	default:
		f.passRequests(next, in, down)
	}
}

// passDownFrom passes what was read ahead of the server's bytes, then the rest.
func (f *flow) passDownFrom(r *bufio.Reader) error {
	if n := r.Buffered(); n > 0 {
		b, _ := r.Peek(n)
		if _, err := (guestWriter{f}).Write(b); err != nil {
			f.reset(reason.Reset)
			return err
		}
	}
	return f.passDown()
}

// guestWriter counts what comes in.
type guestWriter struct{ f *flow }

func (w guestWriter) Write(b []byte) (int, error) {
	w.f.down.Add(int64(len(b)))
	w.f.touch()
	return w.f.guest.Write(b)
}
