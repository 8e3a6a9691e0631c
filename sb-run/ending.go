package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sb/lib/say"
)

// ending is whether a run is to end, and why. The first cause counts.
type ending struct {
	ctx   context.Context // done when the run is to end
	end   context.CancelCauseFunc
	hurry context.Context // done when it was told so again: nothing is waited for any more
}

// sameSignal is the time within which two signals are one: at the end of a
// terminal both the kernel and the shell send SIGHUP.
const sameSignal = 300 * time.Millisecond

// newEnding returns the end of a run, which comes with the first signal that
// asks for it. A Ctrl-C of a terminal in raw mode is no signal: it goes to the
// guest. stop gives the signals their usual meaning again.
func newEnding() (e *ending, stop func()) {
	e = &ending{}
	e.ctx, e.end = context.WithCancelCause(context.Background())
	var again context.CancelFunc
	e.hurry, again = context.WithCancel(context.Background())
	told := make(chan os.Signal, 4)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // by nohup, or by a shell for what it runs in the background
			signal.Notify(told, s)
		}
	}
	go e.listen(told, again)
	return e, func() { signal.Stop(told); close(told) }
}

func (e *ending) listen(told <-chan os.Signal, again func()) {
	var last time.Time
	for s := range told {
		now := time.Now()
		if e.ended() && now.Sub(last) > sameSignal {
			again()
		}
		last = now
		e.end(say.Exit(128 + int(s.(syscall.Signal))))
	}
}

// within is the end of a part of the run, which comes with the run's at the latest.
func (e *ending) within() *ending {
	part := &ending{hurry: e.hurry}
	part.ctx, part.end = context.WithCancelCause(e.ctx)
	return part
}

// endTime is how long a guest may take, after a signal, to end its command and hand
// over what is kept.
const endTime = 10 * time.Second

// lasting is for what a guest is still asked for when a signal has ended the run: it
// ends endTime later, or with another signal. Where something else ends the run, it
// ends with it.
func (e *ending) lasting() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-e.ctx.Done():
		}
		if cause := context.Cause(e.ctx); !isExit(cause) {
			cancel(cause)
		}
		select {
		case <-ctx.Done():
		case <-e.hurry.Done():
			cancel(errors.New("another signal came"))
		case <-time.After(endTime):
			cancel(fmt.Errorf("after the signal it took more than %v", endTime))
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// ended reports whether the run is to end.
func (e *ending) ended() bool { return e.ctx.Err() != nil }

// instead is err, or the cause of the end where there is one: what fails after
// it fails because of it.
func (e *ending) instead(err error) error {
	if err != nil && e.ended() {
		return context.Cause(e.ctx)
	}
	return err
}

// catchSIGPIPE has a write to a pipe that nobody reads fail, rather than end
// this process with its sandbox still standing. It is caught, not ignored:
// children inherit what is ignored.
func catchSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
