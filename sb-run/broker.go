package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/say"
)

// broker is the two processes that put credentials into requests: sb-broker, which
// the gate hands connections to, and its keeper, which has the secrets. They live
// and die together, and each pair has a wire of its own between them: no answer of
// one keeper can reach another broker.
type broker struct {
	part
	wire    pair2
	secrets []string
	given   []givenFD
	trusted chan []byte // the certificate of each broker that was ready, in turn

	mu     sync.Mutex
	keeper *child
}

// givenFD is a descriptor of the user's that a secret is read from.
type givenFD struct {
	n    int
	file *os.File
}

// keeperReadyTime is how long the reading of all secrets may take: several may be
// behind a keychain or a command.
const keeperReadyTime = 90 * time.Second

// maxCertificate bounds the certificate that a broker hands over, in bytes.
const maxCertificate = 64 << 10

// newBroker makes the part that stands for both; nothing is started yet.
func (s *sandbox) newBroker(e *ending, secrets []string, given []givenFD) (*broker, error) {
	wire, err := newPair("broker", fd.Dgram)
	if err != nil {
		return nil, err
	}
	b := &broker{wire: wire, secrets: secrets, given: given, trusted: make(chan []byte, maxDeaths)}
	b.part = part{name: "sb-broker", start: func() (*child, *ctl.Conn, error) { return s.startBroker(e, b) }}
	return b, nil
}

// startBroker starts a keeper, which reads every secret once, and a broker behind
// it.
func (s *sandbox) startBroker(e *ending, b *broker) (*child, *ctl.Conn, error) {
	if err := s.dir.checkManifest(); err != nil {
		return nil, nil, err
	}
	secrets, err := newPair("secrets", fd.Stream)
	if err != nil {
		return nil, nil, err
	}
	defer secrets.close()
	keeper, control, err := s.startKeeper(b, secrets.near)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(e.ctx, keeper.kill)
	err = keeper.awaitReady(keeperReadyTime)
	if stop(); err != nil {
		control.Close()
		return nil, nil, err
	}
	go attend(keeper, control)
	c, conn, err := s.startBehind(b, secrets.far)
	if err != nil {
		keeper.kill()
		return nil, nil, err
	}
	go b.together(keeper, c)
	return c, conn, nil
}

// startBehind starts the broker of a keeper that is ready.
func (s *sandbox) startBehind(b *broker, secrets *os.File) (*child, *ctl.Conn, error) {
	cmd := exec.Command(s.tools["sb-broker"], "--manifest", s.dir.file("sandbox.toml"))
	for _, file := range s.plan.roots {
		cmd.Args = append(cmd.Args, "--roots", homePath(file))
	}
	c, conn, certificate, err := s.startSaying(cmd, "ca-out", wire{"broker", b.wire.far}, wire{"secrets", secrets})
	if err != nil {
		return nil, nil, err
	}
	go b.takeCertificate(certificate, c)
	return c, conn, nil
}

// startKeeper starts a keeper, which is not ready yet.
func (s *sandbox) startKeeper(b *broker, secrets *os.File) (*child, *ctl.Conn, error) {
	cmd := exec.Command(s.tools["sb-broker"], append([]string{"keep"}, b.secrets...)...)
	cmd.Env = keeperEnvironment(s.plan.m.Shares)
	wires := []wire{{"secrets", secrets}}
	for _, g := range b.given {
		wires = append(wires, wire{fmt.Sprintf("fd=%d", g.n), g.file})
	}
	c, conn, dials, err := s.startSaying(cmd, "audit", wires...)
	if err != nil {
		return nil, nil, err
	}
	c.name = "sb-broker keep" // its messages begin with the tool's name alone
	b.mu.Lock()
	b.keeper = c
	b.mu.Unlock()
	if b.isStopping() {
		c.kill()
	}
	go s.listKeeper(dials)
	return c, conn, nil
}

// startSaying starts one of the two with a wire for orders and a pipe, of that name, on
// which it says something. Both ends that are returned are the caller's.
func (s *sandbox) startSaying(cmd *exec.Cmd, says string, wires ...wire) (c *child, conn *ctl.Conn, said *os.File, err error) {
	far, conn, err := newControl()
	if err != nil {
		return nil, nil, nil, err
	}
	defer far.Close()
	r, w, err := os.Pipe()
	if err != nil {
		conn.Close()
		return nil, nil, nil, fmt.Errorf("start sb-broker: %w", err)
	}
	defer w.Close()
	if c, err = start("sb-broker", cmd, s.leash.far, append(wires, wire{says, w}, wire{"ctl", far})...); err != nil {
		r.Close()
		conn.Close()
		return nil, nil, nil, err
	}
	return c, conn, r, nil
}

// attend ends a keeper that is ready and then stops answering, as watch does a part.
// How long it takes to read a secret does not count.
func attend(keeper *child, conn *ctl.Conn) {
	p := &part{conn: conn, answers: make(chan ctl.Message, 1)}
	go listen(conn, p.answers, nil)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var pulse pulse
	for {
		select {
		case <-keeper.done:
			return
		case err := <-pulse.answer:
			if pulse.answer = nil; err != nil {
				keeper.kill()
			}
		case <-tick.C:
			if !pulse.beat(p) {
				keeper.kill()
			}
		}
	}
}

// listKeeper enters into the log what the keeper says that it dialled.
func (s *sandbox) listKeeper(r *os.File) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, audit.MaxLine)
	for lines.Scan() {
		line, err := audit.Parse(lines.Bytes())
		if err != nil || line.Word("by") != "sb" {
			say.Warn("note in the audit log what the keeper dialled: it said %.200q", lines.Bytes())
			continue
		}
		s.note(line)
	}
}

// together ends each of the two with the other.
func (b *broker) together(keeper, broker *child) {
	select {
	case <-keeper.done:
		if !b.isStopping() && !broker.ended() {
			say.Warn("%v", keeper.failed(keeper.end()))
		}
		broker.kill()
	case <-broker.done:
		// Its wire has ended with the broker; it has nothing to write back.
		waitOr(keeper.done, partEndTime, context.Background(), keeper.kill)
	}
}

// takeCertificate reads what the guest is to trust, and passes it on.
func (b *broker) takeCertificate(r *os.File, c *child) {
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxCertificate+1))
	if err == nil {
		err = checkCertificate(text)
	}
	if err != nil {
		if len(text) == 0 { // most often since it has failed, and that is said by itself
			late, cancel := context.WithTimeout(context.Background(), partEndTime)
			defer cancel()
			select {
			case <-c.done:
			case <-late.Done():
			}
		}
		if !b.isStopping() && !c.ended() {
			say.Warn("take the certificate of sb-broker: %v", err)
			c.kill()
		}
		return
	}
	select {
	case b.trusted <- text:
	default: // so many have died that the run ends
	}
}

// checkCertificate refuses all but one certificate: a key must not go on from here.
func checkCertificate(text []byte) error {
	block, rest := pem.Decode(text)
	switch {
	case len(text) > maxCertificate:
		return fmt.Errorf("it is larger than %d bytes", maxCertificate)
	case block == nil:
		return errors.New("there is none")
	case block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 || len(block.Headers) > 0:
		return errors.New("it is not one certificate and nothing else")
	}
	return nil
}

// end ends both, and waits for them.
func (b *broker) end(hurry context.Context) {
	b.part.mu.Lock()
	b.stopping = true
	reading := b.child == nil
	b.part.mu.Unlock()
	b.mu.Lock()
	keeper := b.keeper
	b.mu.Unlock()
	if keeper != nil && reading {
		keeper.kill()
	}
	b.stop(hurry)
	if keeper != nil {
		keeper.stop(syscall.SIGTERM, partEndTime, hurry)
	}
	b.wire.close()
}
