package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"sb/lib/ctl"
)

// The supervision of sb-gate and sb-dns.
const (
	heartbeat   = time.Second     // between two questions whether it is alive
	heartStops  = 2 * time.Second // without an answer it is taken for dead
	maxDeaths   = 3
	deathWindow = time.Minute // so many deaths in it end the run
)

// part is a tool that is started again when it dies: sb-gate or sb-dns. While it
// is gone no byte can leave, for nobody else holds its wire.
type part struct {
	name  string
	start func() (*child, *ctl.Conn, <-chan error, error)

	mu       sync.Mutex
	child    *child
	conn     *ctl.Conn
	answers  chan ctl.Message
	stopping bool
	deaths   []time.Time
	last     error
	event    func(ctl.Message) // what the tool says unasked
	asking   sync.Mutex        // one question at a time
}

// begin starts the tool and its conversation.
func (p *part) begin() (ready <-chan error, err error) {
	c, conn, ready, err := p.start()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child, p.conn, p.answers = c, conn, make(chan ctl.Message, 1)
	go p.listen(conn, p.answers)
	return ready, nil
}

// onEvent sets where what the tool says unasked goes.
func (p *part) onEvent(fn func(ctl.Message)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.event = fn
}

// listen passes answers on and hands events over, until the wire ends.
func (p *part) listen(conn *ctl.Conn, answers chan<- ctl.Message) {
	defer close(answers)
	for {
		m, files, err := conn.Receive()
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			return
		}
		if m.Get("event") == "" {
			answers <- m
			continue
		}
		p.mu.Lock()
		event := p.event
		p.mu.Unlock()
		if event != nil {
			event(m)
		}
	}
}

var errNoAnswer = errors.New("no answer")

// ask asks the tool and waits for its answer, at most d.
func (p *part) ask(d time.Duration, m ctl.Message, files ...*os.File) (ctl.Message, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.mu.Lock()
	conn, answers := p.conn, p.answers
	p.mu.Unlock()
	if err := conn.Send(m, files...); err != nil {
		return nil, err
	}
	select {
	case a, ok := <-answers:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		if why := a.Get("error"); why != "" {
			return nil, errors.New(why)
		}
		return a, nil
	case <-time.After(d):
		return nil, errNoAnswer
	}
}

// watch keeps the tool alive until stop. note is told of each death; the error
// is that of a tool that cannot be kept alive.
func (p *part) watch(note func(*part)) error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		p.mu.Lock()
		c := p.child
		p.mu.Unlock()
		select {
		case <-c.done:
			if p.isStopping() {
				return nil
			}
			if err := p.again(note); err != nil {
				return err
			}
		case <-tick.C:
			if _, err := p.ask(heartStops, ctl.Message{{Key: "ask", Value: "alive"}}); errors.Is(err, errNoAnswer) && !p.isStopping() {
				// Stopped, or stuck: what it holds must not go on by accident.
				c.cmd.Process.Signal(syscall.SIGKILL)
			}
		}
	}
}

// again starts the tool in the place of one that died.
func (p *part) again(note func(*part)) error {
	now := time.Now()
	p.mu.Lock()
	p.last = p.child.err
	p.conn.Close()
	recent := p.deaths[:0]
	for _, t := range p.deaths {
		if now.Sub(t) < deathWindow {
			recent = append(recent, t)
		}
	}
	p.deaths = append(recent, now)
	n, c := len(p.deaths), p.child
	p.mu.Unlock()
	if n >= maxDeaths {
		return fmt.Errorf("%s died %d times within %v; the last time: %w", p.name, n, deathWindow, c.failed(c.err))
	}
	note(p)
	ready, err := p.begin()
	if err == nil {
		err = <-ready
	}
	if err != nil && !p.isStopping() {
		return fmt.Errorf("start %s again: %w", p.name, err)
	}
	return nil
}

func (p *part) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}

func (p *part) lastErr() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// stop ends the tool.
func (p *part) stop() {
	p.mu.Lock()
	p.stopping = true
	c, conn := p.child, p.conn
	p.mu.Unlock()
	if c == nil {
		return
	}
	c.cmd.Process.Signal(syscall.SIGTERM)
	waitOr(c.done, partEndTime, func() { c.cmd.Process.Kill() })
	conn.Close()
}
