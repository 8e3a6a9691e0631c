// Package session runs commands in the guest over one stream: a yamux session,
// one of its streams a command.
//
// A command's stream begins with one frame that says what to run; then both
// sides send frames until the guest sends the exit frame. A frame is a type
// byte, a length (4 bytes, big endian, at most MaxFrame) and that many bytes.
// Flow control is yamux's, for each stream.
package session

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// MaxFrame bounds a frame's bytes, in both directions: what the guest says of
// lengths is not believed beyond it.
const MaxFrame = 64 << 10

// The types of frames.
const (
	frameStart  = iota + 1 // host to guest, once: a Command in JSON
	frameStdin             // host to guest; without bytes: end of file
	frameStdout            // guest to host
	frameStderr            // guest to host
	frameResize            // host to guest: rows and columns, 2 bytes each
	frameSignal            // host to guest: the signal's number, 1 byte
	frameExit              // guest to host, last: a Status in JSON
)

// Command is what to run in the guest.
type Command struct {
	Args    []string          `json:"args"`           // looked up in the PATH of Env; empty: the user's shell
	Env     map[string]string `json:"env,omitempty"`  // beside what the guest sets: HOME, USER, SHELL, PATH
	User    string            `json:"user,omitempty"` // name or uid[:gid]; empty: root
	Workdir string            `json:"workdir,omitempty"`
	TTY     bool              `json:"tty,omitempty"` // a terminal: stderr is stdout
	Rows    uint16            `json:"rows,omitempty"`
	Cols    uint16            `json:"cols,omitempty"`

	// Prepare, if set, is done instead of a command, and then the stream ends.
	Prepare *Prepare `json:"prepare,omitempty"`

	// Export, if set, has the guest write its root file system to stdout, as a tar
	// archive, instead of a command.
	Export bool `json:"export,omitempty"`
}

// Prepare makes the guest ready for the commands that follow.
type Prepare struct {
	MakeUser string            `json:"make_user,omitempty"` // the name that the command's user gets where his number has none; he may use sudo
	Links    map[string]string `json:"links,omitempty"`     // targets by path, made where there is nothing
	Trust    string            `json:"trust,omitempty"`     // a certificate in PEM, added to those that the guest trusts
	Files    map[string]string `json:"files,omitempty"`     // text by path, ~/ being the user's home: written where there is none; in his home his own, else root's
}

// Where the guest keeps the certificate that it was told to trust, and a file with
// all that it trusts.
const (
	TrustedFile = "/etc/sb/ca.crt"
	BundleFile  = "/etc/sb/bundle.crt"
)

// Status is how the command ended. It is the guest's word: nothing on the host
// is decided by it.
type Status struct {
	Code   int    `json:"code"`             // exit code; 126, 127 as in sh if it did not start
	Signal int    `json:"signal,omitempty"` // the signal that ended it
	Error  string `json:"error,omitempty"`  // why it did not start
}

// ExitCode is the status as a shell gives it: 128+n for a signal.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + s.Signal&0x7f
	}
	return s.Code & 0xff
}

// config is yamux's for a wire that cannot lose bytes: no keep-alive and no
// time-outs of its own, since a paused machine is silent for as long as it likes.
func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = 24 * time.Hour
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = time.Hour
	c.LogOutput = io.Discard
	return c
}

// stream is one command's stream.
type stream struct {
	rw io.ReadWriteCloser
	mu sync.Mutex
}

func (s *stream) send(typ byte, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first := true; first || len(b) > 0; first = false {
		n := min(len(b), MaxFrame)
		frame := make([]byte, 5+n)
		frame[0] = typ
		binary.BigEndian.PutUint32(frame[1:], uint32(n))
		copy(frame[5:], b[:n])
		if _, err := s.rw.Write(frame); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (s *stream) sendJSON(typ byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > MaxFrame {
		return fmt.Errorf("%d bytes of arguments and environment, at most %d", len(b), MaxFrame)
	}
	return s.send(typ, b)
}

var errFrame = errors.New("not a frame of the guest stream")

// next reads one frame into buf and returns its bytes, valid until the next call.
func (s *stream) next(buf []byte) (typ byte, b []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(s.rw, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame || head[0] < frameStart || head[0] > frameExit {
		return 0, nil, fmt.Errorf("%w: type %d, %d bytes", errFrame, head[0], n)
	}
	if _, err := io.ReadFull(s.rw, buf[:n]); err != nil {
		return 0, nil, err
	}
	return head[0], buf[:n], nil
}
