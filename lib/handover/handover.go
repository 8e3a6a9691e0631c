// Package handover is the wire between sb-gate and sb-broker: datagrams, one record
// each.
//
//	conn ID NAME ADDR:PORT     gate, with two descriptors: a stream socket that carries
//	                           what the guest sends and is sent, and the connection to
//	                           the server, open already
//	say ID VERDICT REASON WHAT broker: a line of the log about a connection
//	end ID REASON              broker: it has ended both, as it should
//
// The gate keeps a descriptor of the server's connection, to count what goes over
// it and to end it. A connection whose stream ends without an end record had a
// broker that died.
package handover

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"

	"golang.org/x/sys/unix"
)

// maxRecord bounds a record, in bytes: a name has 253 at most.
const maxRecord = 2048

// sendTime is how long the other side may leave a full wire unread.
const sendTime = 5 * time.Second

// Conn is a connection that is handed over. Its receiver owns the files.
type Conn struct {
	ID       uint64
	Name     string         // that the guest asked for, and the server must prove
	At       netip.AddrPort // where the server is
	Guest    *os.File
	Upstream *os.File
}

// Say is something about a connection that belongs in the log.
type Say struct {
	ID      uint64
	Verdict audit.Verdict
	Reason  reason.Code
	What    string // a credential's name, or what was refused
}

// End is the last word on a connection.
type End struct {
	ID     uint64
	Reason reason.Code
}

// Wire is one end. Any goroutine may send; one reads.
type Wire struct {
	c  *net.UnixConn
	mu sync.Mutex // of what is sent
}

// New speaks on f, one end of a datagram pair, and takes it over.
func New(f *os.File) (*Wire, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open the broker wire: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("open the broker wire: not a local socket")
	}
	return &Wire{c: u}, nil
}

// Close ends this side.
func (w *Wire) Close() error { return w.c.Close() }

// Hand hands a connection over; the descriptors stay the caller's.
func (w *Wire) Hand(id uint64, name string, at netip.AddrPort, guest, upstream int) error {
	return w.send(fmt.Sprintf("conn %d %s %s", id, name, at), unix.UnixRights(guest, upstream))
}

// maxWhat is how much of Say.What is sent, in bytes: a guest makes it as long as it
// likes, and no line of the log has more.
const maxWhat = 384

// Say sends a line for the log.
func (w *Wire) Say(s Say) error {
	return w.send(fmt.Sprintf("say %d %s %s %s", s.ID, s.Verdict, s.Reason, audit.Field(s.What[:min(len(s.What), maxWhat)])), nil)
}

// End sends the last word on a connection.
func (w *Wire) End(e End) error { return w.send(fmt.Sprintf("end %d %s", e.ID, e.Reason), nil) }

func (w *Wire) send(record string, rights []byte) error {
	if len(record) > maxRecord {
		return fmt.Errorf("send on the broker wire: %d bytes, at most %d", len(record), maxRecord)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.c.SetWriteDeadline(time.Now().Add(sendTime))
	_, _, err := w.c.WriteMsgUnix([]byte(record), rights, nil)
	return err
}

// Next reads a record: a Conn, a Say or an End.
func (w *Wire) Next() (any, error) {
	buf, oob := make([]byte, maxRecord+1), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := w.c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	files, err := received(oob[:oobn])
	if err == nil && (n > maxRecord || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0) {
		err = errRecord
	}
	var rec any
	if err == nil {
		rec, err = parse(string(buf[:n]), files)
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("receive on the broker wire: %w", err)
	}
	return rec, nil
}

// received are the descriptors that came with a record.
func received(oob []byte) (files []*os.File, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, n := range fds {
			unix.CloseOnExec(n)
			files = append(files, os.NewFile(uintptr(n), "handed"))
		}
	}
	return files, nil
}

var errRecord = errors.New("not a record of this wire")

func parse(text string, files []*os.File) (any, error) {
	w := strings.Split(text, " ")
	if len(w) < 2 {
		return nil, errRecord
	}
	id, err := strconv.ParseUint(w[1], 10, 64)
	if err != nil {
		return nil, errRecord
	}
	switch {
	case w[0] == "conn" && len(w) == 4 && len(files) == 2:
		at, err := netip.ParseAddrPort(w[3])
		if err != nil {
			return nil, errRecord
		}
		return Conn{ID: id, Name: w[2], At: at, Guest: files[0], Upstream: files[1]}, nil
	case w[0] == "say" && len(w) == 5 && len(files) == 0:
		what, err := audit.ParseField(w[4])
		if err != nil || !known(w[3]) || w[2] != string(audit.Deny) && w[2] != string(audit.Note) {
			return nil, errRecord
		}
		return Say{ID: id, Verdict: audit.Verdict(w[2]), Reason: reason.Code(w[3]), What: what}, nil
	case w[0] == "end" && len(w) == 3 && len(files) == 0 && known(w[2]):
		return End{ID: id, Reason: reason.Code(w[2])}, nil
	}
	return nil, errRecord
}

func known(code string) bool {
	_, ok := reason.Explain(reason.Code(code))
	return ok
}
