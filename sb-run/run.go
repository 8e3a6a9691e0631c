package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"sb/lib/ctl"
	"sb/lib/say"
)

// runTarget runs a sandbox: plan, start, command, end.
func runTarget(args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	c, err := loadConfig()
	if err != nil {
		return err
	}
	plan, err := makePlan(o, c)
	if err != nil {
		return err
	}
	tty, err := terminal(o.tty, o.noTTY)
	if err != nil {
		return err
	}
	if o.print != "" {
		return printPlan(os.Stdout, plan, o)
	}
	d, err := newRunDir(o.target)
	if err != nil {
		return err
	}
	r := &runner{dir: d, plan: plan, tty: tty, showLog: o.showLog, end: make(chan struct{})}
	code, err := r.run()
	if e := d.remove(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return say.Exit(code)
}

// runner is one run from its start to its end.
type runner struct {
	dir     *runDir
	plan    *plan
	tty     bool
	showLog bool

	end    chan struct{} // closed when the run is to end
	once   sync.Once
	mu     sync.Mutex
	code   int   // the exit code, if a signal ended the run
	reason error // why the run had to end
}

// stop ends the run, with an exit code of a signal or an error.
func (r *runner) stop(code int, err error) {
	r.once.Do(func() {
		r.mu.Lock()
		r.code, r.reason = code, err
		r.mu.Unlock()
		close(r.end)
	})
}

func (r *runner) run() (int, error) {
	stopSignals := r.signals()
	defer stopSignals()
	if r.plan.ephemeral {
		if err := r.makeDisk(); err != nil {
			return 0, err
		}
	}
	r.plan.m.Name = r.dir.name
	if r.plan.m.Machine.Console == "" {
		r.plan.m.Machine.Console = r.dir.file("console.log")
	}
	if err := r.dir.writeManifest(r.plan.m); err != nil {
		return 0, err
	}
	s, ready, err := startSandbox(r.dir)
	if err != nil {
		return 0, err
	}
	code, err := r.inside(s, ready)
	totals := s.totals()
	s.end()
	r.summarize(totals)
	return code, err
}

func (r *runner) makeDisk() error {
	path := r.dir.file("disk")
	r.plan.m.Machine.Disk = path
	_, err := ask(false, "disk", path, "--size", r.plan.diskSize.String())
	return err
}

// inside runs the command in the machine.
func (r *runner) inside(s *sandbox, ready <-chan error) (int, error) {
	defer r.stop(0, nil)
	r.supervise(s)
	var err error
	select {
	case err = <-ready:
	case <-r.end:
		err = errEnded
	}
	if err != nil {
		return r.ended(err)
	}
	if r.plan.ephemeral {
		// The machine has it open. What dies with the machine needs no name.
		os.Remove(r.plan.m.Machine.Disk)
	}
	h, err := s.openSession()
	if err != nil {
		return r.ended(err)
	}
	defer h.Close()
	c := guestCommand(r.plan.m)
	c.TTY = r.tty
	code, err := runCommand(h, c, r.end)
	if err != nil {
		return r.ended(err)
	}
	return code, nil
}

// ended says how a run ended that was cut short by err: a signal, a part that
// cannot be kept alive, or the machine's own end.
func (r *runner) ended(err error) (int, error) {
	if !errors.Is(err, errEnded) {
		// The end of the machine shows in several places at once; its own
		// process knows the cause.
		select {
		case <-r.end:
		case <-time.After(2 * time.Second):
			return 0, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == nil && r.code == 0 {
		return 0, err
	}
	return r.code, r.reason
}

// supervise keeps the gate and the resolver alive and ends the run with the
// machine.
func (r *runner) supervise(s *sandbox) {
	s.gate.onEvent(func(m ctl.Message) {
		if m.Get("event") == "rotate" {
			go s.rotate()
		}
	})
	for _, p := range []*part{s.gate, s.dns} {
		go func() {
			if err := p.watch(s.noteDeath); err != nil {
				r.stop(0, fmt.Errorf("the machine was stopped: %w", err))
			}
		}()
	}
	go func() {
		<-s.vm.done
		if s.vm.err == nil {
			r.stop(0, errors.New("the machine powered off"))
			return
		}
		r.stop(0, s.vm.failed(s.vm.err))
	}()
}

// rotate gives the gate a new log.
func (s *sandbox) rotate() {
	f, err := s.dir.rotateAudit()
	if err != nil {
		say.Warn("%v", err)
		return
	}
	defer f.Close()
	if _, err := s.gate.ask(heartStops, ctl.Message{{Key: "ask", Value: "audit"}}, f); err != nil {
		say.Warn("give sb-gate a new audit log: %v", err)
	}
}

// signals ends the run when it is told to; told again, at once. A Ctrl-C of a
// terminal in raw mode is no signal: it goes to the guest.
func (r *runner) signals() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	sig := make(chan os.Signal, 4)
	signal.Notify(sig, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	// A closed terminal or pipe is noticed by the write itself.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		for n := 0; ; n++ {
			select {
			case s := <-sig:
				r.stop(128+int(s.(syscall.Signal)), nil)
				if n > 0 {
					r.dir.remove()
					os.Exit(128 + int(s.(syscall.Signal)))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { signal.Stop(sig); cancel() }
}

// summarize tells what was refused, and prints the log if that was asked for.
func (r *runner) summarize(totals []total) {
	if r.showLog {
		for _, name := range []string{"audit.log.1", "audit.log"} {
			if f, err := os.Open(r.dir.file(name)); err == nil {
				io.Copy(os.Stderr, f)
				f.Close()
			}
		}
	}
	printTotals(totals)
}
