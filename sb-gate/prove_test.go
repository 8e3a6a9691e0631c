//go:build linux

package main

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/fd"
	"sb/lib/reason"
	"sb/lib/say"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// TestProof: a gate whose sb-dns does not refuse what must be refused is never
// ready, and says why. With an honest one it is, whatever the rules are.
func TestProof(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []string
		lie   func(d *fakeDNS, rec any) bool
		want  string // of the error; "": it is ready
	}{
		{"honest", nil, nil, ""},
		{"all that can be allowed", []string{"*.example.org", "0.0.0.0/1", "128.0.0.0/1", "0.0.0.0/1:9/raw", "128.0.0.0/1:9/raw", "198.18.0.0/15:9/raw"}, nil, ""},
		{"all that can be denied", []string{"!0.0.0.0/1", "!128.0.0.0/1", "!sb.invalid"}, nil, ""},
		{"sb-dns allows", nil, lying(true, dnsmessage.RCodeSuccess, reason.AllowRule, true), "sb-dns allowed sb-"},
		{"sb-dns allows without an address", nil, lying(true, dnsmessage.RCodeNameError, reason.AllowRule, false), "sb-dns allowed sb-"},
		{"it denies and answers", nil, lying(false, dnsmessage.RCodeSuccess, reason.NoAllowRule, true), "what must be refused was answered by 198.18.0.1:53"},
		{"it answers with nothing", nil, lying(false, dnsmessage.RCodeSuccess, reason.NoAllowRule, false), "what must be refused was answered by 198.18.0.1:53"},
		{"it refuses for another cause", nil, lying(false, dnsmessage.RCodeNameError, reason.QueryBudget, false), "query-budget"},
		{"it speaks of another name", nil, func(d *fakeDNS, rec any) bool {
			a := d.about(rec.(wire.Query))
			a.Name = "other.example"
			return d.conn.Send(a) == nil
		}, "other.example"},
		{"it sends what is no answer", nil, func(d *fakeDNS, rec any) bool { return d.conn.Send(wire.Query{ID: 1, Message: []byte("x")}) == nil }, "sb-dns sent a wire.Query"},
		{"it ends", nil, func(d *fakeDNS, rec any) bool { d.file.Close(); return true }, "the dns wire"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := proves(t, c.lie, c.rules...)
			switch {
			case c.want == "" && (err != nil || !strings.Contains(text, " note run test - gate-proved - n=")):
				t.Errorf("%v, the log:\n%s", err, text)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), "prove that the rules hold: ") || !strings.Contains(err.Error(), c.want)):
				t.Errorf("it ended: %v, want %q", err, c.want)
			case c.want != "" && strings.Contains(text, "gate-proved"):
				t.Errorf("it says that it is proven:\n%s", text)
			case strings.Contains(text, "invalid") || strings.Contains(text, " deny "):
				t.Errorf("the proof is in the log as if the guest had asked:\n%s", text)
			}
		})
	}
}

// lying answers every question in one way.
func lying(allow bool, code dnsmessage.RCode, why reason.Code, address bool) func(d *fakeDNS, rec any) bool {
	return func(d *fakeDNS, rec any) bool {
		q := rec.(wire.Query)
		var p dnsmessage.Parser
		h, _ := p.Start(q.Message)
		asked, _ := p.Question()
		a := d.about(q)
		a.Allow, a.Reason = allow, why
		var ip netip.Addr
		if address {
			ip = d.net.FirstHandle()
		}
		if allow {
			a.Handle = ip
		}
		a.Message = reply(h.ID, asked, code, ip)
		return d.conn.Send(a) == nil
	}
}

// proves starts a gate and waits until it is ready, then ends it, or until it
// has ended by itself. It returns the log, and how it ended if it was not ready.
func proves(t *testing.T, lie func(d *fakeDNS, rec any) bool, rules ...string) (log string, err error) {
	s := &sandbox{t: t, done: make(chan error, 1)}
	before := open()
	m, set := policyOf(t, rules...)
	var w wires
	var frames, dns, leash, ready *os.File
	w.frames, frames = s.pair("frames", fd.Dgram)
	w.dns, dns = s.pair("dns", fd.Stream)
	w.leash, leash = s.pair("leash", fd.Stream)
	w.ready, ready = s.pair("ready", fd.Stream)
	path := filepath.Join(t.TempDir(), "log")
	if w.audit, err = os.Create(path); err != nil {
		t.Fatal(err)
	}
	d := newFakeDNS(m.Network, set, dns)
	d.lie = lie
	go d.run()
	go func() { s.done <- serve(m, set, w) }()
	notReady := fd.WaitReady(ready, say.Version)
	if lie == nil && notReady != nil || lie != nil && notReady != io.ErrUnexpectedEOF {
		t.Errorf("ready: %v", notReady)
	}
	leash.Close()
	err = s.wait()
	for _, f := range []*os.File{frames, dns, ready} {
		f.Close()
	}
	<-d.ended
	if left := before.leaks(); left != "" {
		t.Error(left)
	}
	text, _ := os.ReadFile(path)
	return string(text), err
}
