package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-vm/machine"
)

const (
	// bootTime bounds a boot: under emulation on a busy host it takes seconds.
	bootTime = 120 * time.Second
	// endTime is how long a machine may take to write back what it holds.
	endTime = 3 * time.Second
)

// vm is a machine that runs, whatever the hypervisor.
type vm struct {
	control io.ReadWriteCloser // the host's end of the machine port
	conn    *machine.Conn
	talk    sync.Mutex // one question at a time
	done    chan error // gets the end of the hypervisor
	kill    func()     // ends it at once
	console *console

	// Of one that is restored from memory:
	fetch func() error           // has the hypervisor do it, and waits until it has
	drop  func(why error) func() // what it was restored from does not do; takes that away
	seal  func()                 // it is up, and opens no file any more

	// Of one that boots since it could not be restored: takes away what it could
	// not be restored from. Where not even a boot comes up, that is not to blame.
	bad func()
}

// ended is sent the end of the machine: nil if the guest powered off.
func (v *vm) ended() <-chan error { return v.done }

// guestBits is the length of the guest's prefix: only the gateway is beside it.
// What else it tries in the sandbox's own network goes to the gateway, which
// refuses it at once.
const guestBits = 30

// restoreTime bounds the whole of a restore, which takes a tenth of a second on a
// host with nothing else to do.
const restoreTime = 20 * time.Second

// configure waits for the guest and makes it this sandbox's machine.
func (v *vm) configure(m *manifest.Manifest) error {
	limit := bootTime
	if v.fetch != nil {
		limit = restoreTime
	}
	c := &machine.Configure{
		Hostname: m.Name,
		Address:  netip.PrefixFrom(m.Network.Guest(), guestBits).String(),
		Gateway:  m.Network.Gateway().String(),
		MTU:      m.Network.MTU,
	}
	size, err := fileSize(m.Machine.Disk)
	if err != nil {
		return err
	}
	c.DiskSize = size
	if m.Machine.Kept != "" {
		if c.KeptSize, err = fileSize(m.Machine.Kept); err != nil {
			return err
		}
	}
	for i, s := range m.Shares {
		share := guestShare(i)
		share.Target, share.ReadOnly = s.Guest, s.ReadOnly || s.Copy
		share.Copy, share.Private, share.UID, share.GID = s.Copy, s.Private, s.UID, s.GID
		c.Shares = append(c.Shares, share)
	}
	answered := make(chan error, 1)
	go func() {
		if v.fetch != nil {
			if err := v.fetch(); err != nil {
				answered <- err
				return
			}
		}
		answered <- v.ask(machine.Request{Do: "configure", Time: time.Now().UnixNano(), Entropy: entropy(), Configure: c})
	}()
	select {
	case err := <-answered:
		return err
	case <-time.After(limit):
		return fmt.Errorf("no answer in %v", limit)
	}
}

// entropy is the host's randomness for a guest.
func entropy() []byte {
	b := make([]byte, 64)
	rand.Read(b)
	return b
}

// sharePort is the name of share i: of its port, or its tag.
func sharePort(i int) string { return fmt.Sprintf("%s%d", machine.SharePort, i) }

func (v *vm) ask(r machine.Request) error {
	v.talk.Lock()
	defer v.talk.Unlock()
	return v.conn.Ask(r)
}

// end has the guest write back what it holds and power off; if it does not in
// time, the machine is killed.
func (v *vm) end() error {
	go v.ask(machine.Request{Do: "poweroff"})
	select {
	case <-v.done:
	case <-time.After(endTime):
		v.kill()
		<-v.done
	}
	return nil
}

// explain adds the console's last lines to the reason of a machine's death.
func (v *vm) explain(err error) error {
	if err == nil {
		return nil
	}
	for _, gone := range []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, gone) {
			err = errors.New("the machine ended")
		}
	}
	for l := range strings.SplitSeq(strings.TrimSpace(v.console.tail()), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			err = say.WithHint(err, "console: %s", l)
		}
	}
	return err
}
