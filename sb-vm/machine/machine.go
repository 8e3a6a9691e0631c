// Package machine is what sb-vm and the program in its guest tell each other,
// over a port of their own: lines of JSON, one request at a time and one answer
// to each. The guest's commands do not go this way.
package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The names of the virtio ports. A share's is SharePort and its number.
const (
	Port      = "sb.machine" // this conversation
	GuestPort = "sb.guest"   // the guest stream, for package session
	SharePort = "sb.share"
)

// MaxLine bounds a line in bytes.
const MaxLine = 1 << 20

// Request is what sb-vm asks of the guest.
type Request struct {
	Do        string     `json:"do"`                // settle, configure, time, sync or poweroff
	Time      int64      `json:"time,omitempty"`    // Unix nanoseconds
	Entropy   []byte     `json:"entropy,omitempty"` // for the kernel's random generator
	Configure *Configure `json:"configure,omitempty"`
}

// Configure makes the machine that booted this sandbox's. What is marked so is
// that of the machine alone, and all that settle is told: it does ahead what can
// be done for any sandbox, and leaves the machine at rest, to be saved.
type Configure struct {
	Hostname string  `json:"hostname"`
	Address  string  `json:"address"`             // of eth0, with the length of its prefix: 198.18.0.2/24
	Gateway  string  `json:"gateway"`             // the default route and the only nameserver
	MTU      int     `json:"mtu"`                 // (the machine's)
	DiskSize int64   `json:"disk_size"`           // bytes that the writable file system may grow to (the machine's)
	KeptSize int64   `json:"kept_size,omitempty"` // the same of the disk for private directories, 0 if there is none
	Shares   []Share `json:"shares,omitempty"`
}

// Share is a directory to mount. Either sb-vm serves it on a port of its own, or
// the hypervisor by virtio-fs, under a tag.
type Share struct {
	Port     string `json:"port,omitempty"` // the name of its virtio port
	Tag      string `json:"tag,omitempty"`  // its tag
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`

	Copy    bool     `json:"copy,omitempty"`    // what the guest changes stays on its own disk
	Private []string `json:"private,omitempty"` // directories below Target that lie on the guest's own disk
	UID     uint32   `json:"uid,omitempty"`     // who owns those
	GID     uint32   `json:"gid,omitempty"`
}

// Answer is the guest's. Done is true or Error says why not.
type Answer struct {
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
}

// ErrSays is among the causes of an Ask that the guest answered with an error.
var ErrSays = errors.New("the guest says")

// Conn is either end.
type Conn struct {
	r *bufio.Reader
	w io.Writer
}

// NewConn speaks on rw.
func NewConn(rw io.ReadWriter) *Conn { return &Conn{bufio.NewReader(rw), rw} }

// Send writes one line.
func (c *Conn) Send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.w.Write(append(b, '\n'))
	return err
}

// Receive reads one line into v.
func (c *Conn) Receive(v any) error {
	var line []byte
	for {
		part, err := c.r.ReadSlice('\n')
		if line = append(line, part...); len(line) > MaxLine {
			return fmt.Errorf("a line of more than %d bytes", MaxLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(line, v)
	}
}

// Ask sends a request and waits for its answer.
func (c *Conn) Ask(r Request) error {
	if err := c.Send(r); err != nil {
		return err
	}
	var a Answer
	if err := c.Receive(&a); err != nil {
		return err
	}
	if !a.Done {
		return fmt.Errorf("%w: %.500q", ErrSays, a.Error)
	}
	return nil
}
