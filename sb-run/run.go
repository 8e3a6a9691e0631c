package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/lib/session"
	"sb/sb-run/repo"
)

// runTarget runs a sandbox, or prints what it would be.
func runTarget(args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	c, err := loadConfig()
	if err != nil {
		return err
	}
	o.terminal = cmp.Or(o.terminal, c.Terminal)
	given := takeGiven(c)
	// What was inherited and not asked for is nobody's here, the children's
	// least of all.
	if err := fd.CloseRest(); err != nil {
		return err
	}
	e, stop := newEnding()
	plan, err := makePlan(e, o, c)
	if err != nil {
		return e.instead(err)
	}
	plan.given, plan.roots = given, c.Broker.Roots
	if err := outOfReach(plan.m, c); err != nil {
		return err
	}
	if o.print != "" {
		stop()
		return printPlan(os.Stdout, plan, o)
	}
	if len(plan.m.Rules.Allow) == 0 {
		say.Note("no rule allows anything: this sandbox reaches nothing (--allow HOST opens a host)")
	}
	defer stop()
	return runPlan(e, plan, o, c)
}

// runPlan has what the plan needs made or fetched, and runs it.
func runPlan(e *ending, plan *plan, o *options, c *config) error {
	if err := plan.complete(e, o.target); err != nil {
		return e.instead(err)
	}
	found, err := findTools(plan.m)
	if err != nil {
		return err
	}
	if err := plan.protect(found, o.target, c.path); err != nil {
		return err
	}
	tty, err := terminal(o.tty, o.noTTY)
	if err != nil {
		return err
	}
	kept, err := beginState(plan.m)
	if err != nil {
		return err
	}
	catchSIGPIPE()
	d, err := newRunDir(plan.name)
	if err != nil {
		return err
	}
	r := &runner{ending: e, dir: d, plan: plan, tools: found, tty: tty, raw: o.terminal == terminalRaw, showLog: o.showLog, recording: recordingOf(plan.m, o, c), state: kept}
	before := plan.lookBefore()
	err = r.run()
	before.tell()
	if left := d.remove(); left != nil {
		if say.Code(err) == say.CodeOK {
			return left
		}
		say.Warn("%v", left)
	}
	return err
}

// runner is one run from its start to its end.
type runner struct {
	*ending
	dir       *runDir
	plan      *plan
	tools     tools
	tty       bool
	raw       bool // terminals are written to unfiltered
	showLog   bool
	what      func(context.Context, *session.Host) error // what is done inside; nil: the plan's command
	recording *recording                                 // nil: nothing is recorded
	state     *agentState                                // nil: none is kept
	before    *repo.Repo                                 // what the guest clones, as it was before
}

// run returns the command's exit code as an error, as say.Exit makes it, or why
// there is none.
func (r *runner) run() error {
	m := r.plan.m
	m.Name = r.dir.name
	if r.plan.ephemeral {
		m.Machine.Disk = r.dir.file("disk")
		if err := makeDisk(r.ending, m); err != nil {
			return r.instead(err)
		}
	}
	if err := r.keepPrivate(m); err != nil {
		return r.instead(err)
	}
	if m.Machine.Console == "" {
		m.Machine.Console = r.dir.file("console.log")
	}
	if err := r.dir.enter(m); err != nil {
		return err
	}
	if err := r.dir.makeShadows(m); err != nil {
		return err
	}
	if m.Run.Clone != nil {
		var err error
		if r.before, err = cloned(m); err != nil {
			return err
		}
	}
	if err := r.dir.writeManifest(m); err != nil {
		return err
	}
	if err := r.record(); err != nil { // before anything of the guest's runs
		return r.instead(err)
	}
	s, err := startSandbox(r.dir, r.tools, r.plan, r.ending)
	if err != nil {
		return r.instead(err)
	}
	err = r.inside(s)
	totals := s.totals(r.hurry)
	s.end(r.hurry)
	keepShadows(m, r.dir.path)
	r.summarize(totals)
	return err
}

// inside runs the command in the machine.
func (r *runner) inside(s *sandbox) error {
	defer r.end(nil)
	s.supervise(r.ending)
	select {
	case <-s.up:
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	if r.plan.ephemeral {
		// The machine has it open. What dies with the machine needs no name.
		os.Remove(r.plan.m.Machine.Disk)
	}
	guest := s.guest
	s.guest = nil
	last := r.ctx
	if r.state != nil || r.plan.m.Run.Clone != nil {
		var done func()
		last, done = r.lasting()
		defer done()
	}
	h, err := openSession(r.ctx, last, guest) // ends with the run: nobody follows on it
	if err != nil {
		return r.cause(err)
	}
	if r.what != nil {
		return r.cause(r.what(r.ctx, h))
	}
	if err := r.prepare(s, h); err != nil {
		return r.cause(err)
	}
	c := guestCommand(r.plan.m)
	c.TTY = r.tty
	err = runCommand(r.ctx, last, h, c, r.raw)
	if r.state != nil {
		r.state.keep(last, h)
	}
	if isExit(err) || err == nil {
		r.keepWork(last, h)
	}
	return r.cause(err)
}

// cause is why the stream ended, where that is what err says: the end of the
// machine shows first there, and its own process knows the reason.
func (r *runner) cause(err error) error {
	var lost *streamEnd
	if errors.As(err, &lost) {
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case <-time.After(vmEndTime):
		}
	}
	return err
}

// summarize tells what was refused, and prints the log if that was asked for.
func (r *runner) summarize(totals []total) {
	if r.showLog {
		for _, name := range []string{"audit.log.1", "audit.log"} {
			r.dir.show(os.Stderr, name)
		}
	}
	printTotals(r.dir.name, totals)
}
