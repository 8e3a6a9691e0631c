package main

import (
	"bytes"
	"io"
	"os"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/sb-gate/hello"
	"sb/sb-gate/http1"

	"golang.org/x/sys/unix"
)

// kind is what a flow turned out to be.
type kind int

const (
	kindMore    kind = iota // not known yet
	kindRefused             // nothing that may pass
	kindTLS
	kindHTTP
	kindRaw   // neither, and the rule lets it pass
	kindEnded // one side ended before anything was said
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

// identify reads the guest's first bytes until it is clear what they are. None
// of them has been passed on when it returns. A server that speaks before them
// shows that this is neither TLS nor HTTP.
func (f *flow) identify() first {
	guest := make(chan first, 1)
	server := make(chan bool, 1)
	go func() { guest <- f.readFirst() }()
	go func() { server <- f.serverSpeaks() }()
	var got first
	spoke := false
	select {
	case got = <-guest:
		f.outer.SetReadDeadline(time.Now())
		<-server
	case spoke = <-server:
		f.guest.SetReadDeadline(time.Now())
		got = <-guest
		if got.kind == kindMore && !spoke {
			got.kind = kindEnded
		}
	}
	f.guest.SetReadDeadline(time.Time{})
	f.outer.SetReadDeadline(time.Time{})
	if got.kind == kindMore {
		return f.unclear(got, spoke)
	}
	return got
}

// unclear decides about a guest that has said nothing, or not enough, until the
// server spoke, the time was up or it ended.
func (f *flow) unclear(got first, spoke bool) first {
	switch {
	case f.verdict.Raw:
		return first{kind: kindRaw, bytes: got.bytes}
	case spoke:
		return refused(audit.TCP, reason.ServerFirst)
	case len(got.bytes) > 0:
		return refused(audit.TCP, reason.NotIdentified)
	case got.err == io.EOF:
		return first{kind: kindEnded}
	case os.IsTimeout(got.err):
		return refused(audit.TCP, reason.NothingSent)
	}
	return refused(audit.TCP, reason.Reset)
}

// serverSpeaks waits until the server has sent a byte, which is left where it
// is, or has ended (false). A deadline in the past ends the wait.
func (f *flow) serverSpeaks() (spoke bool) {
	raw, err := f.outer.SyscallConn()
	if err != nil {
		return false
	}
	raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		spoke = n > 0
		return err != unix.EAGAIN && err != unix.EINTR
	})
	return spoke
}

// readFirst reads until it is clear what the bytes are, or none come any more.
func (f *flow) readFirst() first {
	start := time.Now()
	f.guest.SetReadDeadline(start.Add(proofTime))
	var held []byte
	buf := make([]byte, 4096)
	for {
		n, err := f.guest.Read(buf)
		if n > 0 {
			if len(held) == 0 && f.verdict.Raw {
				f.guest.SetReadDeadline(time.Now().Add(rawProofTime))
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
