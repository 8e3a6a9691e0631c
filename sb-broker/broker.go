package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/binding"
	"sb/lib/handover"
	"sb/lib/reason"
	"sb/lib/say"
	"sb/sb-broker/authority"
)

// The bounds of what a guest can make the broker hold.
const (
	maxHead       = 64 << 10 // bytes of a head, of either side
	maxFields     = 200      // of a head
	maxStreams    = 100      // requests at a time on a connection
	maxAnswers    = 1024     // and on all of them
	headTime      = 10 * time.Second
	handshakeTime = 10 * time.Second // each
	idleTime      = 10 * time.Minute // between two requests
	smallAnswer   = 64 << 10         // an answer up to this size keeps its length when it is looked through
)

// broker serves the connections that the gate hands it.
type broker struct {
	sites  map[string]*site // by name
	roots  *x509.CertPool
	ca     *authority.Authority
	wire   *handover.Wire
	keeper *keeper
	values values
	flows  *flows
	warned sync.Map // what was said once

	answering atomic.Int64 // requests
}

func newBroker(credentials []binding.Binding, roots *x509.CertPool) (*broker, error) {
	sites, err := newSites(credentials)
	if err != nil {
		return nil, err
	}
	return &broker{sites: sites, roots: roots, flows: newFlows()}, nil
}

// take serves connections until the wire ends.
func (b *broker) take() error {
	for {
		rec, err := b.wire.Next()
		if err != nil {
			return err
		}
		c, ok := rec.(handover.Conn)
		if !ok {
			return fmt.Errorf("receive on the broker wire: the gate does not say %T", rec)
		}
		go func() {
			b.wire.End(handover.End{ID: c.ID, Reason: b.handle(c)})
		}()
	}
}

// handle serves one connection and says how it ended.
func (b *broker) handle(c handover.Conn) reason.Code {
	guest, err := connOf(c.Guest)
	if err != nil {
		c.Upstream.Close()
		return reason.DescriptorsOut
	}
	upstream, err := connOf(c.Upstream)
	if err != nil {
		guest.Close()
		return reason.DescriptorsOut
	}
	f := &flow{b: b, id: c.ID, site: b.sites[c.Name], port: c.At.Port(), closed: make(chan struct{})}
	f.guest, f.upstream = &guestConn{Conn: guest, f: f}, &serverConn{Conn: upstream, f: f}
	defer func() {
		upstream.Close()
		guest.Close()
	}()
	if f.site == nil {
		f.say(audit.Deny, reason.BrokerAbsent, c.Name)
		return reason.BrokerAbsent
	}
	var room bool
	if f.windows, room = b.flows.enter(f); !room {
		f.say(audit.Deny, reason.MemoryBudget, "")
		return reason.MemoryBudget
	}
	defer b.flows.leave(f)
	return f.serve()
}

func connOf(f *os.File) (net.Conn, error) {
	defer f.Close()
	return net.FileConn(f)
}

// warn tells the user of something once, however often a guest causes it.
func (b *broker) warn(what string, format string, args ...any) {
	if _, again := b.warned.LoadOrStore(what, true); !again {
		say.Warn(format, args...)
	}
}

// newClient is how servers are spoken to: by HTTP/2 where that was agreed on, and
// with nothing asked or undone that the guest did not ask for.
func newClient(w windows, p *http.Protocols) *http.Transport {
	return &http.Transport{
		DialTLSContext:         dialHanded,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHead,
		ReadBufferSize:         connBuffer,
		WriteBufferSize:        connBuffer,
		ExpectContinueTimeout:  time.Second,
		Protocols:              p,
		HTTP2:                  w.far(),
	}
}

// serverConfig is how a guest is spoken to, by the protocol that the server chose.
func (b *broker) serverConfig(cert *tls.Certificate, protocol string) *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if protocol != "" {
		c.NextProtos = []string{protocol}
	}
	return c
}
