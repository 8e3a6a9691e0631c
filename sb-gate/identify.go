package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/http1"
	"sb/lib/reason"
	"sb/sb-gate/hello"
)

// kind is what a flow turned out to be.
type kind int

const (
	kindMore    kind = iota // not known yet
	kindRefused             // nothing that may pass
	kindTLS
	kindHTTP
	kindRaw    // neither, and the rule lets it pass
	kindEnded  // one side ended before anything was said
	kindBroken // one side reset it before anything was said
)

// first is what a flow began with.
type first struct {
	kind  kind
	bytes []byte      // the guest's, held back so far
	hello hello.Hello // of kindTLS
	gate  audit.Gate  // of kindRefused: which check refused
	why   reason.Code //
	err   error       // of kindMore: why no more bytes came
}

func refused(gate audit.Gate, why reason.Code) first {
	return first{kind: kindRefused, gate: gate, why: why}
}

var past = time.Unix(1, 0)

// identify reads the guest's first bytes until it is clear what they are. None
// of them has been passed on when it returns. A server that speaks before them
// shows that this is neither TLS nor HTTP.
func (f *flow) identify() first {
	f.guest.SetReadDeadline(time.Now().Add(proofTime))
	server := make(chan error, 1)
	var hurry atomic.Bool
	go func() {
		_, heard := f.outer.awaitSome()
		hurry.Store(true)
		f.guest.SetReadDeadline(past)
		server <- heard
	}()
	got := f.readFirst(&hurry)
	f.outer.conn.SetReadDeadline(past)
	heard := <-server
	f.readOn()
	if got.kind == kindMore {
		return f.unclear(got, heard)
	}
	return got
}

// readOn lets both halves be read without a deadline again, unless the flow is
// over: then the deadline is what ends those who read.
func (f *flow) readOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.guest.SetReadDeadline(time.Time{})
		f.outer.conn.SetReadDeadline(time.Time{})
	}
}

// unclear decides about a guest that has said nothing, or not enough, until the
// server spoke or ended (heard), the time was up or the guest ended.
func (f *flow) unclear(got first, heard error) first {
	timeUp := os.IsTimeout(got.err)
	switch {
	case heard != nil && !errors.Is(heard, os.ErrDeadlineExceeded):
		if heard == io.EOF {
			return first{kind: kindEnded}
		}
		return first{kind: kindBroken}
	case got.err != io.EOF && !timeUp:
		return first{kind: kindBroken}
	case f.verdict.Raw:
		return first{kind: kindRaw, bytes: got.bytes}
	case heard == nil:
		return refused(audit.TCP, reason.ServerFirst)
	case hello.Looks(got.bytes):
		return refused(audit.TLS, reason.HelloMalformed) // it stops in the middle
	case len(got.bytes) > 0:
		return refused(audit.TCP, reason.NotIdentified)
	case timeUp:
		return refused(audit.TCP, reason.NothingSent)
	}
	return first{kind: kindEnded}
}

// readFirst reads until it is clear what the bytes are, or none come any more.
// Where unproven bytes may pass, it does not wait for long once it has some. In
// a hurry it waits for none.
func (f *flow) readFirst(hurry *atomic.Bool) first {
	var held []byte
	buf := make([]byte, 4096)
	for {
		n, err := f.guest.Read(buf)
		if n > 0 {
			if len(held) == 0 && f.verdict.Raw {
				f.guest.SetReadDeadline(time.Now().Add(rawProofTime))
				if hurry.Load() {
					f.guest.SetReadDeadline(past)
				}
			}
			held = append(held, buf[:n]...)
			f.touch()
			if got := decide(held, f.verdict.Raw); got.kind != kindMore {
				got.bytes = held
				return got
			}
		}
		if err != nil {
			return first{bytes: held, err: err}
		}
	}
}

// decide says what a stream is that begins with b. Where raw bytes may pass,
// only what is clearly TLS or HTTP is taken for it.
func decide(b []byte, raw bool) first {
	switch {
	case hello.Looks(b):
		h, more, why := hello.Parse(b)
		switch {
		case more:
			return first{}
		case why != "":
			return refused(audit.TLS, why)
		}
		return first{kind: kindTLS, hello: h}
	case http1.Looks(b):
		if bytes.IndexByte(b, ' ') < 0 {
			return first{} // the method is not whole
		}
		if !raw {
			return first{kind: kindHTTP}
		}
		line, _, whole := bytes.Cut(b, []byte("\n"))
		switch {
		case !whole && len(b) < http1.MaxHead:
			return first{}
		case bytes.Contains(line, []byte(" HTTP/")):
			return first{kind: kindHTTP}
		}
	}
	if raw {
		return first{kind: kindRaw}
	}
	return refused(audit.TCP, reason.NotIdentified)
}
