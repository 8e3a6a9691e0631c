package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/lib/template"
	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

// saved is a template that this machine is to be restored from.
type saved struct {
	*template.Template
	drop func(why error) func() // says that it cannot be restored; takes it away
}

// findSaved returns the saved machine to start from, after saving it if it is
// not there. It returns nil, and has said why, where the machine has to boot; an
// error only when it is not to be started any more.
func (q *qemu) findSaved(ctx context.Context) (*saved, error) {
	t, err := q.savedOrSave(ctx)
	if err == nil || ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	say.Note("the machine boots, it is not restored from memory: %s", inOneLine(err))
	return nil, nil
}

// inOneLine is an error with the last of its hints: of a machine's end, that is
// the last that it or QEMU said.
func inOneLine(err error) string {
	var e *say.Error
	if errors.As(err, &e) && len(e.Hints) > 0 {
		return fmt.Sprintf("%v (%s)", err, e.Hints[len(e.Hints)-1])
	}
	return err.Error()
}

func (q *qemu) savedOrSave(ctx context.Context) (*saved, error) {
	inputs, err := q.inputs()
	if err != nil {
		return nil, err
	}
	store, err := template.Open()
	if err != nil {
		return nil, err
	}
	key := template.Key(inputs)
	t, err := store.Find(key)
	made := err != nil
	if made {
		if why := store.Refused(key); why != "" {
			return nil, triedLater(why)
		}
		if t, err = q.makeSaved(ctx, store, inputs, err); err != nil {
			return nil, err
		}
	}
	return &saved{t, func(why error) func() {
		say.Warn("the saved machine cannot be restored, this one boots: %s", inOneLine(why))
		return func() {
			if made {
				store.Refuse(key, "one that was just saved could not be restored: "+inOneLine(why))
			}
			if err := store.Remove(key); err != nil {
				say.Warn("drop the saved machine: %v", err)
			}
		}
	}}, nil
}

// triedLater is what the last who tried noted.
func triedLater(why string) error {
	return say.WithHint(errors.New(why), "sb-image gc has it tried again")
}

// saveMachine is sb-vm --save.
func saveMachine(ctx context.Context, m *manifest.Manifest) error {
	q, err := newQEMU(m)
	if err != nil {
		return err
	}
	t, err := q.savedOrSave(ctx)
	if err == nil {
		t.Close()
	} else if ctx.Err() != nil {
		return fmt.Errorf("save the machine: %w", context.Cause(ctx))
	}
	return err
}

// renewDisk makes the disk what it was when the machine was saved: it had been
// mounted by then. What it was before is gone, so an error is the machine's end.
func (q *qemu) renewDisk(t *saved) error {
	disk, err := os.OpenFile(q.m.Machine.Disk, os.O_WRONLY, 0)
	if err == nil {
		err = errors.Join(template.Copy(disk, t.Disk), disk.Close())
	}
	if err != nil {
		return fmt.Errorf("copy the saved machine's disk: %w", err)
	}
	return nil
}

// makeSaved saves the machine, unless somebody else has done so meanwhile. why is
// the reason for which the one that there may have been does not do.
func (q *qemu) makeSaved(ctx context.Context, store *template.Store, inputs []template.Input, why error) (*template.Template, error) {
	key := template.Key(inputs)
	d, err := store.Lock(ctx, inputs)
	if err != nil {
		return nil, fmt.Errorf("save it: %w", err)
	}
	defer d.Discard()
	if t, err := store.Find(key); err == nil {
		return t, nil
	}
	if why := store.Refused(key); why != "" { // whoever this waited for failed
		return nil, triedLater(why)
	}
	other := store.Outdated(inputs)
	switch {
	case !errors.Is(why, fs.ErrNotExist):
		say.Note("the saved machine is not used, it is saved anew: %v", why)
	case other != "":
		say.Note("the machine boots and is saved anew: the saved one has another %s", other)
	default:
		say.Note("the first machine of its kind boots, and is saved: the next ones start from memory")
	}
	if err = q.save(ctx, d); err == nil {
		err = d.Publish()
	}
	if err != nil {
		err = fmt.Errorf("save it: %w", err)
		if ctx.Err() == nil {
			d.Refuse(inOneLine(err))
		}
		return nil, err
	}
	return store.Find(key)
}

// save boots a machine like this one, with nothing of the user's in it and nobody
// at its wires, up to the point where it waits to be told whose it is.
func (q *qemu) save(ctx context.Context, d *template.Draft) error {
	like := *q
	like.m = machineAlone(q.m, d.Path(template.Disk))
	like.saved = d.Path(template.Memory)
	l := &launch{qemu: &like, how: save}
	if err := l.prepare(d, q.m.Machine.Disk); err != nil {
		return err
	}
	v := &vm{done: make(chan error, 1), console: &console{}}
	var wires [2]pair
	for i, kind := range []fd.Kind{fd.Dgram, fd.Stream} {
		var err error
		if wires[i].near, wires[i].far, err = fd.Pair("template", kind); err != nil {
			return err
		}
		defer wires[i].near.Close()
		defer wires[i].far.Close()
	}
	l.frames, l.guest = wires[0].far, wires[1].far
	defer l.state.Close()
	defer l.ends.closeShares()
	err := v.start(l)
	l.ends.closeFar()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, v.kill)
	defer stop()
	err = v.saveTo(l.state, l.ends.near.monitor, like.m, bootTime)
	v.kill()
	<-v.done
	if err != nil && full(l.state) {
		return fmt.Errorf("the machine ended: %s: %w", filepath.Dir(d.Path("")), unix.ENOSPC)
	}
	return v.explain(err)
}

// full says whether there is no more room where the file is. QEMU, whose memory is
// a file there, is killed then and says nothing.
func full(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Bavail*uint64(fs.Bsize) < 1<<20
}

// prepare makes the files that are to be saved to.
func (l *launch) prepare(d *template.Draft, disk string) error {
	memory, err := os.OpenFile(d.Path(template.Memory), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer memory.Close()
	if err := memory.Truncate(int64(l.m.Machine.Memory) >> 20 << 20); err != nil {
		return err
	}
	if l.state, err = os.OpenFile(d.Path(template.State), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		return err
	}
	from, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(d.Path(template.Disk), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(template.Copy(to, from), to.Close()); err != nil {
		return err
	}
	return l.ends.open(sharePorts(len(l.m.Shares)))
}

// saveTo saves the machine when it is at rest, within that time: others wait for it.
func (v *vm) saveTo(state, monitor *os.File, m *manifest.Manifest, limit time.Duration) error {
	late := time.AfterFunc(limit, v.kill)
	defer late.Stop()
	if err := v.settle(m); err != nil {
		return err
	}
	return migrate(monitor, monitorSave, state)
}

// settle waits until the guest has booted and is at rest.
func (v *vm) settle(m *manifest.Manifest) error {
	size, err := fileSize(m.Machine.Disk)
	if err != nil {
		return err
	}
	if err := v.ask(machine.Request{Do: "settle", Configure: &machine.Configure{MTU: m.Network.MTU, DiskSize: size}}); err != nil {
		return err
	}
	// Its random generator is ready, which it must be to be seeded anew.
	return v.ask(machine.Request{Do: "time", Time: time.Now().UnixNano(), Entropy: entropy()})
}
