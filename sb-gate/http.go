package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"sb/lib/audit"
	"sb/lib/http1"
	"sb/lib/reason"
	"sb/lib/rule"
)

// serveHTTP lets HTTP/1 requests through, each of which must be for a host that
// is allowed and is where the flow leads. Nothing of a request goes out before
// its head was judged.
func (f *flow) serveHTTP(held []byte) {
	// All that was held back fits, so that Buffered tells of every byte of it.
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(held), f.guest), max(4096, len(held)))
	f.guest.SetReadDeadline(time.Now().Add(proofTime))
	req, no := f.readRequest(in)
	f.readOn()
	switch {
	case no.broken:
		f.reset(reason.Reset)
		return
	case no.why != "":
		f.denyLine(audit.HTTP, no.why, no.host, no.rule)
		f.answer(no.why, f.forbidden(no))
		return
	case !f.allow(true):
		return
	}
	if req.Upgrade != "" {
		f.upgrade(req, in)
		return
	}
	down := make(chan error, 1)
	go func() {
		growStack()
		down <- f.passDown()
	}()
	f.passRequests(req, in, down)
}

// passRequests passes req and those that follow it, until the guest ends or one
// of them is refused.
func (f *flow) passRequests(req *http1.Request, in *bufio.Reader, down chan error) {
	for f.pass(req, in) {
		next, no := f.readRequest(in)
		if no.why == "" && next != nil && next.Upgrade != "" {
			no.why = reason.HTTPUpgrade // only the first answer can be told from the others
		}
		switch {
		case no.broken:
			f.reset(reason.Reset)
			<-down
			return
		case no.why != "":
			f.refuseLater(no, down)
			return
		case next == nil:
			f.settle(f.outer.closeWrite(), <-down)
			return
		}
		req = next
	}
	<-down
}

// pass passes a request. False: the flow is over, because a side broke or the
// request turned out to have no plain end.
func (f *flow) pass(req *http1.Request, in *bufio.Reader) bool {
	if !f.listOthers(audit.HTTP) {
		return false
	}
	out := upWriter{f}
	_, err := out.Write(req.Head)
	if err == nil {
		err = req.Body(out, in, func(n int64) error { return f.passBody(in, n) })
	}
	var r http1.Refused
	switch {
	case err == nil:
		return true
	case errors.As(err, &r):
		f.deny(audit.HTTP, r.Code, hostOf(req.Host), "")
	default:
		f.reset(reason.Reset)
	}
	return false
}

// passBody passes n bytes of a request's body: what was read ahead, then the
// guest's own.
func (f *flow) passBody(in *bufio.Reader, n int64) error {
	ahead, _ := in.Peek(int(min(n, int64(in.Buffered()))))
	if err := f.up(ahead); err != nil {
		return err
	}
	in.Discard(len(ahead))
	if n -= int64(len(ahead)); n == 0 {
		return nil
	}
	err := f.guest.passMost(n, f.up)
	if err == io.EOF {
		return io.ErrUnexpectedEOF // in the middle of it
	}
	return err
}

// refuseLater refuses a request that follows others on its connection: the
// server's answers to those come first. It is told that no more requests come;
// when it has answered and ended, the refusal follows.
func (f *flow) refuseLater(no refusedRequest, down chan error) {
	f.denyLine(audit.HTTP, no.why, no.host, no.rule)
	f.parting.Store(true)
	f.outer.closeWrite()
	select {
	case err := <-down:
		if err == nil {
			f.answer(no.why, f.forbidden(no))
		}
	case <-time.After(lingerTime):
		f.reset(no.why)
		<-down
	}
}

// refusedRequest is why a request is not let through.
type refusedRequest struct {
	why    reason.Code
	host   string // that it asked for, as far as it could be read
	rule   string
	broken bool // the guest's half broke; there is nothing to answer
}

// readRequest reads a request's head and judges it. A nil request that is not
// refused means that the guest has ended.
func (f *flow) readRequest(in *bufio.Reader) (*http1.Request, refusedRequest) {
	req, err := http1.Read(in)
	var r http1.Refused
	switch {
	case errors.As(err, &r):
		return nil, refusedRequest{why: r.Code}
	case err == io.EOF:
		return nil, refusedRequest{}
	case err == io.ErrUnexpectedEOF, os.IsTimeout(err):
		return nil, refusedRequest{why: reason.HTTPMalformed}
	case err != nil:
		return nil, refusedRequest{broken: true}
	}
	no := f.checkHost(req.Host)
	if no.why == "" && req.Upgrade != "" {
		no.why = checkUpgrade(req.Upgrade)
	}
	return req, no
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
func (f *flow) checkHost(text string) refusedRequest {
	host := hostOf(text)
	if port := strings.TrimPrefix(text[len(host):], ":"); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return refusedRequest{host: host, why: reason.HTTPMalformed}
		}
		if uint16(n) != f.to.addr.Port() {
			return refusedRequest{host: host, why: reason.HostMismatch}
		}
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		if (f.to.name == rule.Name{}) && a.Unmap() == f.outer.at.Addr() {
			return refusedRequest{host: host}
		}
		return refusedRequest{host: host, why: reason.HostMismatch}
	}
	name, err := rule.ParseName(host)
	if err != nil {
		return refusedRequest{host: host, why: reason.HTTPMalformed}
	}
	no := refusedRequest{host: name.String()}
	no.why, no.rule = f.proves(name, proofHTTP)
	return no
}

// hostOf is the Host field without its port.
func hostOf(text string) string {
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		return text[:i]
	}
	return text
}

// forbidden is the gate's own answer, with the rule that would allow it.
func (f *flow) forbidden(no refusedRequest) []byte {
	target := no.host
	if target == "" {
		target = f.to.name.String()
	}
	fix := ""
	if r := rule.Suggest(target, rule.TCP, f.to.addr.Port(), no.why, f.outer.at.Addr()); r != "" {
		fix = "To allow it: --allow " + r
	}
	return http1.Forbidden(no.why, no.host, fix)
}

// upgrade passes a request that asks for another protocol and waits for its
// answer: after a 101 everything passes as it is, else HTTP goes on. The guest
// may not say more before it knows.
func (f *flow) upgrade(req *http1.Request, in *bufio.Reader) {
	if !f.pass(req, in) {
		return
	}
	if in.Buffered() > 0 {
		f.deny(audit.HTTP, reason.HTTPUpgrade, hostOf(req.Host), "")
		return
	}
	answers := bufio.NewReader(f.outer)
	switched, err := http1.Switched(downWriter{f}, answers)
	if err != nil {
		f.reset(reason.Reset)
		return
	}
	down := make(chan error, 1)
	go func() {
		growStack()
		down <- f.passDownFrom(answers)
	}()
	if switched {
		f.settle(f.passUp(nil), <-down)
		return
	}
	next, no := f.readRequest(in)
	switch {
	case no.broken:
		f.reset(reason.Reset)
		<-down
	case no.why != "":
		f.refuseLater(no, down)
	case next == nil:
		f.settle(f.outer.closeWrite(), <-down)
	default:
		f.passRequests(next, in, down)
	}
}

// passDownFrom passes what was read ahead of the server's bytes, then the rest.
func (f *flow) passDownFrom(r *bufio.Reader) error {
	ahead, _ := r.Peek(r.Buffered())
	if err := f.down(ahead); err != nil {
		f.reset(reason.Reset)
		return err
	}
	return f.passDown()
}

// upWriter and downWriter are the two directions of a flow.
type (
	upWriter   struct{ f *flow }
	downWriter struct{ f *flow }
)

func (w upWriter) Write(b []byte) (int, error)   { return len(b), w.f.up(b) }
func (w downWriter) Write(b []byte) (int, error) { return len(b), w.f.down(b) }
