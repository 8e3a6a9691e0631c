package session

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"syscall"

	"github.com/hashicorp/yamux"
)

// Host is the host's end of the guest stream.
type Host struct{ mux *yamux.Session }

// NewHost takes the stream and waits until the guest answers on it: until the
// machine is up, or conn ends. Close closes conn.
func NewHost(conn io.ReadWriteCloser) (*Host, error) {
	if err := greet(conn); err != nil {
		return nil, fmt.Errorf("open the guest stream: %w", err)
	}
	mux, err := yamux.Client(&replies{ReadWriteCloser: conn, r: bufio.NewReader(conn)}, config())
	if err != nil {
		return nil, fmt.Errorf("open the guest stream: %w", err)
	}
	return &Host{mux}, nil
}

// Close leaves the stream to another host. Commands that run end.
func (h *Host) Close() error {
	h.mux.GoAway()
	return h.mux.Close()
}

// Done is closed when the stream has ended.
func (h *Host) Done() <-chan struct{} { return h.mux.CloseChan() }

// Process is a command that runs in the guest.
type Process struct {
	s      *stream
	done   chan struct{}
	status Status
	err    error
}

// Start runs a command; what it writes goes to stdout and stderr until Wait
// returns.
func (h *Host) Start(c Command, stdout, stderr io.Writer) (*Process, error) {
	conn, err := h.mux.Open()
	if err != nil {
		return nil, fmt.Errorf("open a stream to the guest: %w", err)
	}
	p := &Process{s: &stream{rw: conn}, done: make(chan struct{})}
	if err := p.s.sendJSON(frameStart, c); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start a command in the guest: %w", err)
	}
	go p.receive(stdout, stderr)
	return p, nil
}

func (p *Process) receive(stdout, stderr io.Writer) {
	defer close(p.done)
	defer p.s.rw.Close()
	buf := make([]byte, MaxFrame)
	for {
		typ, b, err := p.s.next(buf)
		if err == nil {
			switch typ {
			case frameStdout:
				err = writeAll(stdout, b)
			case frameStderr:
				err = writeAll(stderr, b)
			case frameExit:
				if err = json.Unmarshal(b, &p.status); err == nil {
					return
				}
			default:
				err = fmt.Errorf("%w: type %d", errFrame, typ)
			}
		}
		if err != nil {
			p.err = fmt.Errorf("the guest stream ended before the command: %w", err)
			return
		}
	}
}

// writeAll passes output on. An output that nobody reads any more ends the
// command as in a shell: by SIGPIPE, which the error makes of it.
func writeAll(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// Write passes b to the command's standard input.
func (p *Process) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if err := p.s.send(frameStdin, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseStdin tells the command the end of its input.
func (p *Process) CloseStdin() error { return p.s.send(frameStdin, nil) }

// Resize tells the terminal's size.
func (p *Process) Resize(rows, cols uint16) error {
	b := binary.BigEndian.AppendUint16(nil, rows)
	return p.s.send(frameResize, binary.BigEndian.AppendUint16(b, cols))
}

// Signal sends a signal to the command's process group. Numbers are Linux's.
func (p *Process) Signal(sig syscall.Signal) error { return p.s.send(frameSignal, []byte{byte(sig)}) }

// Wait returns when the command has ended and its output is written.
func (p *Process) Wait() (Status, error) {
	<-p.done
	return p.status, p.err
}

// Done is closed when Wait would return.
func (p *Process) Done() <-chan struct{} { return p.done }
