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

// Input is what the host sends to a command that runs. One of its fields is set.
type Input struct {
	Stdin  []byte         // bytes, valid until the next Input is read
	EOF    bool           // the end of stdin
	Rows   uint16         // the terminal's size
	Cols   uint16         //
	Signal syscall.Signal // for the command's process group
}

// Served is one command's stream on the guest's side.
type Served struct {
	s   *stream
	buf []byte
}

// Serve accepts commands on conn, from one host after the other, until conn
// ends. run is called for each command, in a goroutine of its own, and ends it
// with Exit.
func Serve(conn io.ReadWriter, run func(Command, *Served)) error {
	r := bufio.NewReader(conn)
	for {
		nonce, err := awaitHost(r)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(conn, greeting+nonce+"\n"); err != nil {
			return err
		}
		mux, err := yamux.Server(&untilGoAway{r: r, w: conn}, config())
		if err != nil {
			return fmt.Errorf("open the guest stream: %w", err)
		}
		acceptAll(mux, run)
		mux.Close()
	}
}

func acceptAll(mux *yamux.Session, run func(Command, *Served)) {
	for {
		c, err := mux.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			sv := &Served{s: &stream{rw: c}, buf: make([]byte, MaxFrame)}
			typ, b, err := sv.s.next(sv.buf)
			var cmd Command
			if err != nil || typ != frameStart || json.Unmarshal(b, &cmd) != nil {
				return
			}
			run(cmd, sv)
		}()
	}
}

// Input reads what the host sends next; an error means that it is gone.
func (sv *Served) Input() (Input, error) {
	typ, b, err := sv.s.next(sv.buf)
	switch {
	case err != nil:
		return Input{}, err
	case typ == frameStdin && len(b) == 0:
		return Input{EOF: true}, nil
	case typ == frameStdin:
		return Input{Stdin: b}, nil
	case typ == frameResize && len(b) == 4:
		return Input{Rows: binary.BigEndian.Uint16(b), Cols: binary.BigEndian.Uint16(b[2:])}, nil
	case typ == frameSignal && len(b) == 1:
		return Input{Signal: syscall.Signal(b[0])}, nil
	}
	return Input{}, fmt.Errorf("%w: type %d, %d bytes", errFrame, typ, len(b))
}

// Stdout and Stderr are writers to the host.
func (sv *Served) Stdout() io.Writer { return output{sv.s, frameStdout} }
func (sv *Served) Stderr() io.Writer { return output{sv.s, frameStderr} }

type output struct {
	s   *stream
	typ byte
}

func (o output) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if err := o.s.send(o.typ, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Exit tells the host how the command ended.
func (sv *Served) Exit(st Status) error { return sv.s.sendJSON(frameExit, st) }
