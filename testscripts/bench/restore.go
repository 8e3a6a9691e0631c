package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sb/lib/fd"
	"sb/lib/template"

	"golang.org/x/sys/unix"
)

// restored compares starts from memory with cold ones and with bare QEMU's, each
// in turn, in a small and in a large machine.
func restored() error {
	var all error
	for _, mb := range []string{memoryMB, "8192"} {
		all = errors.Join(all, restoredWith(mb))
	}
	return errors.Join(all, together())
}

func restoredWith(mb string) error {
	bare, err := newBareRestore(mb)
	if err != nil {
		return err
	}
	defer bare.close()
	var cold, ours, theirs []time.Duration
	for range *rounds {
		for _, side := range []struct {
			took *[]time.Duration
			run  func() (time.Duration, error)
		}{
			{&cold, func() (time.Duration, error) { return firstByte(mb, "--cold") }},
			{&ours, func() (time.Duration, error) { return firstByte(mb) }},
			{&theirs, bare.firstByte},
		} {
			t, err := side.run()
			if err != nil {
				return err
			}
			*side.took = append(*side.took, t)
		}
	}
	fmt.Printf("%s MiB: cold %v\n  restored %v\n  bare QEMU %v\n", mb, rounded(cold), rounded(ours), rounded(theirs))
	ratio := func(a, b []time.Duration) float64 { return float64(median(a)) / float64(median(b)) }
	return errors.Join(
		report("a start from memory against a cold one, "+mb+" MiB", ratio(ours, cold), "times", 0.20),
		report("  against bare QEMU -incoming of the same template", ratio(ours, theirs), "times", 1.25))
}

// together starts five from memory at once, and prints how long they take.
func together() error {
	took := make([]time.Duration, 5)
	errs := make([]error, len(took))
	var wait sync.WaitGroup
	for i := range took {
		wait.Go(func() { took[i], errs[i] = firstByte(memoryMB) })
	}
	wait.Wait()
	fmt.Printf("five at once, from memory: the first %v, the last %v\n", slices.Min(took).Round(time.Millisecond), slices.Max(took).Round(time.Millisecond))
	return errors.Join(errs...)
}

// bareRestore is QEMU restoring the machine that sb-run's is restored from.
type bareRestore struct {
	argv []string
	dir  string // of the template
	disk string // a copy of its disk
}

// newBareRestore finds the command line and the template of a machine that runs.
func newBareRestore(mb string) (*bareRestore, error) {
	s, err := idling("--cpus", cpus, "--memory", mb+"m")
	if err != nil {
		return nil, err
	}
	defer s.end()
	b := &bareRestore{}
	for _, p := range family(s.cmd.Process.Pid) {
		if !strings.HasPrefix(p.name, "qemu") {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if err != nil {
			return nil, err
		}
		for _, arg := range bytes.Split(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
			b.argv = append(b.argv, string(arg))
		}
		if b.dir, err = templateOf(p.pid); err != nil {
			return nil, err
		}
	}
	if b.argv == nil {
		return nil, errors.New("no QEMU runs")
	}
	f, err := os.CreateTemp("", "bench-disk-")
	if err != nil {
		return nil, err
	}
	b.disk = f.Name()
	f.Close()
	for i, arg := range b.argv {
		if strings.HasPrefix(arg, "memory-backend-file,") {
			options := strings.Split(arg, ",")
			for j, o := range options {
				if strings.HasPrefix(o, "mem-path=") {
					options[j] = "mem-path=" + filepath.Join(b.dir, template.Memory)
				}
			}
			b.argv[i] = strings.Join(options, ",")
		}
		if strings.Contains(arg, "node-name=disk,") {
			before, _, _ := strings.Cut(arg, "filename=")
			b.argv[i] = before + "filename=" + b.disk
		}
	}
	return b, nil
}

func (b *bareRestore) close() { os.Remove(b.disk) }

// templateOf finds the template whose memory a process has mapped.
func templateOf(pid int) (string, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i > 0 && strings.Contains(line, "/templates/") {
			return filepath.Dir(strings.TrimSpace(line[i:])), nil
		}
	}
	return "", fmt.Errorf("process %d has no template's memory: the machine was not restored", pid)
}

// firstByte restores once and returns the time to the first byte of echo's output.
func (b *bareRestore) firstByte() (time.Duration, error) {
	began := time.Now()
	if err := b.copyDisk(); err != nil {
		return 0, err
	}
	kinds := []fd.Kind{fd.Dgram, fd.Stream, fd.Stream, fd.Stream, fd.Stream} // frames, guest, machine, console, monitor
	near, far := make([]*os.File, len(kinds)), make([]*os.File, len(kinds))
	for i, kind := range kinds {
		var err error
		if near[i], far[i], err = fd.Pair("bare", kind); err != nil {
			return 0, err
		}
		defer near[i].Close()
	}
	cmd := exec.Command(b.argv[0], b.argv[1:]...)
	cmd.ExtraFiles, cmd.Stderr = far, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for _, f := range far {
		f.Close()
	}
	if err := b.incoming(near[4]); err != nil {
		return 0, err
	}
	if err := configure(near[2]); err != nil {
		return 0, err
	}
	return echoed(near[1], began)
}

func (b *bareRestore) copyDisk() error {
	from, err := os.Open(filepath.Join(b.dir, template.Disk))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(b.disk)
	if err != nil {
		return err
	}
	return errors.Join(template.Copy(to, from), to.Close())
}

// incoming has QEMU take the saved state, over its monitor (QMP).
func (b *bareRestore) incoming(monitor *os.File) error {
	state, err := os.Open(filepath.Join(b.dir, template.State))
	if err != nil {
		return err
	}
	defer state.Close()
	c, err := net.FileConn(monitor)
	if err != nil {
		return err
	}
	defer c.Close()
	conn := c.(*net.UnixConn)
	for _, line := range []string{`{"execute":"qmp_capabilities"}`,
		`{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"x-ignore-shared","state":true},{"capability":"events","state":true}]}}`,
		`{"execute":"getfd","arguments":{"fdname":"state"}}`,
		`{"execute":"migrate-incoming","arguments":{"uri":"fd:state"}}`} {
		var with []byte
		if strings.Contains(line, "getfd") {
			with = unix.UnixRights(int(state.Fd()))
		}
		if _, _, err := conn.WriteMsgUnix([]byte(line+"\n"), with, nil); err != nil {
			return err
		}
	}
	for in := json.NewDecoder(conn); ; {
		var said struct {
			Error *struct{ Desc string }
			Event string
			Data  struct{ Status string }
		}
		switch err := in.Decode(&said); {
		case err != nil:
			return err
		case said.Error != nil:
			return errors.New(said.Error.Desc)
		case said.Event == "MIGRATION" && said.Data.Status == "failed":
			return errors.New("the migration failed")
		case said.Event == "MIGRATION" && said.Data.Status == "completed":
			return nil
		}
	}
}
