package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"sb/lib/ctl"
)

// part is a tool that is started again when it dies: sb-gate, sb-dns or sb-broker.
// While it is gone no byte can leave that needs it, for nobody else holds its wire.
type part struct {
	name  string
	start func() (*child, *ctl.Conn, error)
	event func(ctl.Message) // gets what the tool says unasked; nil: nobody does

	mu       sync.Mutex
	child    *child
	conn     *ctl.Conn
	answers  chan ctl.Message
	stopping bool

	asking  sync.Mutex     // one question at a time
	watched sync.WaitGroup // the goroutine that keeps it alive
}

// begin starts the tool and its conversation; ready is sent whether it is ready.
func (p *part) begin(ready chan<- error) error {
	c, conn, err := p.start()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.child, p.conn, p.answers = c, conn, make(chan ctl.Message, 1)
	go listen(conn, p.answers, p.event)
	stopping := p.stopping
	p.mu.Unlock()
	if stopping {
		c.kill()
	}
	go func() { ready <- c.awaitReady(partReadyTime) }()
	return nil
}

// listen passes answers on and hands events over, until the wire ends.
func listen(conn *ctl.Conn, answers chan<- ctl.Message, event func(ctl.Message)) {
	defer conn.Close()
	defer close(answers)
	for {
		m, files, err := conn.Receive()
		for _, f := range files {
			f.Close()
		}
		switch {
		case err != nil:
			return
		case m.Get("event") == "":
			select {
			case answers <- m:
			default: // to no question
			}
		case event != nil:
			event(m)
		}
	}
}

var errHurry = errors.New("there was no time to wait for the answer")

// ask asks the tool and waits for its answer, as long as the tool lives: one
// that does not answer is killed by watch.
func (p *part) ask(hurry context.Context, m ctl.Message, files ...*os.File) (ctl.Message, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.mu.Lock()
	conn, answers := p.conn, p.answers
	p.mu.Unlock()
	select {
	case <-answers: // to a question that was given up
	default:
	}
	if err := conn.Send(m, files...); err != nil {
		return nil, err
	}
	select {
	case a, ok := <-answers:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		return a, nil
	case <-hurry.Done():
		return nil, errHurry
	}
}

// The supervision of a part. The question is asked at one tick; at
// the third after it, at most two seconds after the tool stopped, it is taken
// for dead. Ticks are counted, not time, so that a tool is not blamed for what
// this process did not see while it was stopped itself.
const (
	heartbeat   = 500 * time.Millisecond
	maxMissed   = 3
	maxDeaths   = 3
	deathWindow = time.Minute // so many deaths in it end the run
)

// watch keeps the tool alive until it is stopped, or until e has come: then a
// death is only noted. The error is that of a tool that cannot be kept alive.
func (p *part) watch(e *ending, note func(c *child, again bool)) error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var died deaths
	var pulse pulse
	for {
		p.mu.Lock()
		c, stopping := p.child, p.stopping
		p.mu.Unlock()
		select {
		case <-c.done:
			if stopping || p.isStopping() {
				return nil
			}
			if e.ended() {
				note(c, false)
				return nil
			}
			if err := p.again(c, &died, note); err != nil {
				return err
			}
			pulse.answer = nil
		case err := <-pulse.answer:
			if pulse.answer = nil; err != nil {
				c.kill() // it can be told nothing any more
			}
		case <-tick.C:
			if !pulse.beat(p) {
				// Stopped, or stuck: what it holds must not go on by accident.
				c.kill()
			}
		}
	}
}

// pulse is a question whether a tool is alive.
type pulse struct {
	answer <-chan error
	missed int // ticks without it
}

// beat is called at each tick, and asks when there is no question. False: the last one
// has had no answer for too long.
func (l *pulse) beat(p *part) bool {
	if l.answer == nil {
		l.answer, l.missed = p.alive(), 0
		return true
	}
	l.missed++
	return l.missed != maxMissed
}

// alive asks whether the tool is.
func (p *part) alive() <-chan error {
	answer := make(chan error, 1)
	go func() {
		_, err := p.ask(context.Background(), ctl.Message{{Key: "ask", Value: "alive"}})
		answer <- err
	}()
	return answer
}

// again starts the tool in the place of c, which died, until one is ready.
func (p *part) again(c *child, died *deaths, note func(c *child, again bool)) error {
	why := c.failed(c.end())
	for {
		n := died.add(time.Now())
		note(c, n < maxDeaths)
		if n >= maxDeaths {
			return fmt.Errorf("%s died %d times within %v; the last time: %w", p.name, n, deathWindow, why)
		}
		ready := make(chan error, 1)
		if err := p.begin(ready); err != nil {
			return fmt.Errorf("start %s again: %w", p.name, err)
		}
		if why = <-ready; why == nil || p.isStopping() {
			return nil
		}
		p.mu.Lock()
		c = p.child
		p.mu.Unlock()
	}
}

// deaths are the times at which a part died.
type deaths []time.Time

// add enters a death and returns how many there were within the window.
func (d *deaths) add(now time.Time) int {
	recent := []time.Time{now}
	for _, t := range *d {
		if now.Sub(t) < deathWindow {
			recent = append(recent, t)
		}
	}
	*d = recent
	return len(recent)
}

func (p *part) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}

// stop ends the tool, and what keeps it alive.
func (p *part) stop(hurry context.Context) {
	p.mu.Lock()
	p.stopping = true
	c := p.child
	p.mu.Unlock()
	if c != nil {
		c.stop(syscall.SIGTERM, partEndTime, hurry)
	}
	p.watched.Wait()
}
