package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"sb/lib/confine"
	"sb/lib/fd"
	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-vm/share"

	"golang.org/x/sys/unix"
)

// shareSpec is one share as the share server's process is told of it.
type shareSpec struct {
	Name      string        `json:"name"` // its path on the host, for messages
	Root      int           `json:"root"` // descriptor of the directory
	Stream    int           `json:"stream"`
	ReadOnly  bool          `json:"read_only,omitempty"`
	Hidden    []string      `json:"hidden,omitempty"`
	Protected []string      `json:"protected,omitempty"`
	Shadowed  []string      `json:"shadowed,omitempty"`
	Store     int           `json:"store,omitempty"` // descriptor of the directory of its shadows, 0 without one
	Ours      []share.Inode `json:"ours,omitempty"`  // directories of sb, never shown
	UID       uint32        `json:"uid"`
	GID       uint32        `json:"gid"`
}

// startShares starts the process that serves the shares, one for all of them:
// they belong to the same guest. It is nil where there are none.
func startShares(shares []manifest.Share, ends []*os.File) (*exec.Cmd, error) {
	if len(shares) == 0 {
		return nil, nil
	}
	var args []string
	var files []*os.File
	for i, s := range shares {
		root, err := openShare(s.Host)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		spec := shareSpec{Name: s.Host, Root: 3 + len(files), Stream: 4 + len(files), ReadOnly: s.ReadOnly || s.Copy,
			Hidden: s.Hidden, Protected: s.Protected, Shadowed: s.Shadowed, Ours: ourInodes(), UID: s.UID, GID: s.GID}
		files = append(files, root, ends[i])
		if s.Shadow != "" && !spec.ReadOnly {
			store, err := openShare(s.Shadow)
			if err != nil {
				return nil, err
			}
			defer store.Close()
			spec.Store = 3 + len(files)
			files = append(files, store)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			return nil, err
		}
		args = append(args, "--share", string(text))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	type result struct {
		cmd *exec.Cmd
		err error
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread() // it ends with this thread (PDEATHSIG)
		cmd, err := startShareServer(args, files, w)
		started <- result{cmd, err}
		select {}
	}()
	got := <-started
	w.Close()
	if got.err == nil {
		got.err = fd.WaitReady(r, say.Version)
	}
	if got.err != nil {
		return nil, fmt.Errorf("start the share server: %w", got.err)
	}
	return got.cmd, nil
}

func startShareServer(args []string, files []*os.File, ready *os.File) (*exec.Cmd, error) {
	var refused []string
	for _, level := range confine.Levels() {
		all := append([]string{"share"}, args...)
		if level != confine.None {
			all = append(all, "--root")
		}
		cmd := exec.Command("/proc/self/exe", all...)
		cmd.Args[0] = "sb-vm"
		cmd.ExtraFiles = files
		cmd.Stdout, cmd.Stderr = ready, os.Stderr
		cmd.Env = []string{"GOMAXPROCS=2"}
		cmd.SysProcAttr = confine.Apart(level, true)
		err := cmd.Start()
		if err == nil {
			if lacks := level.Lacks(); lacks != "" {
				say.Warn("the share server is not confined by %s (%s)", lacks, strings.Join(refused, "; "))
			}
			return cmd, nil
		}
		refused = append(refused, err.Error())
	}
	return nil, fmt.Errorf("%s", strings.Join(refused, "; "))
}

// openShare opens a directory to share; nothing in it is opened by a path again.
// A link on the way would be one that whoever checked the path did not see: a
// guest that shares what lies above may have put it there since.
func openShare(path string) (*os.File, error) {
	n, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ELOOP) {
		return nil, say.WithHint(fmt.Errorf("share %s: a part of this path is a symbolic link", path), "name the directory by its real path: realpath %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", path, err)
	}
	return os.NewFile(uintptr(n), path), nil
}

// ourInodes are the directories of sb itself by identity: the guest could be
// shown one of them by whatever path.
func ourInodes() (ours []share.Inode) {
	for _, path := range keep.Ours() {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			ours = append(ours, share.Inode{Dev: st.Dev, Ino: st.Ino})
		}
	}
	return ours
}

// endShares ends the share server after its machine: its streams have ended, and
// what it was writing it may finish.
func endShares(cmd *exec.Cmd) {
	if cmd == nil {
		return
	}
	timer := time.AfterFunc(time.Second, func() { cmd.Process.Kill() })
	cmd.Wait()
	timer.Stop()
}

// shareMain is `sb-vm share`, the process that serves shares: it confines itself
// to their directories and answers until their streams end.
func shareMain(args []string) error {
	flags := say.Flags("sb-vm share", "--share JSON… [--root]", "Serves directories to the guest. A process of sb-vm's own.")
	texts := flags.StringArray("share", nil, "a share (`JSON`)")
	root := flags.Bool("root", false, "see no file system but the shares (needs a mount namespace)")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	var specs []shareSpec
	view := confine.View{Read: []string{"/proc/self/fd", "/proc/sys/fs/inotify/max_user_watches"}}
	for _, t := range *texts {
		var s shareSpec
		if err := json.Unmarshal([]byte(t), &s); err != nil {
			return say.Usage("sb-vm share: %v", err)
		}
		specs = append(specs, s)
	}
	if err := confineShares(specs, view, *root); err != nil {
		return err
	}
	if err := fd.Ready(os.Stdout, say.Version); err != nil {
		return err
	}
	var wait sync.WaitGroup
	for _, s := range specs {
		wait.Go(func() {
			if err := s.serve(); err != nil {
				say.Warn("%v", err)
			}
		})
	}
	wait.Wait()
	return nil
}

// Capabilities of linux/capability.h that let root serve what belongs to other
// users, as it could on the host.
const capDACOverride, capFowner = 1, 3

func confineShares(specs []shareSpec, view confine.View, root bool) error {
	if root {
		if err := confine.NewRoot(view); err != nil {
			return err
		}
	}
	for _, s := range specs {
		path := fmt.Sprintf("/proc/self/fd/%d", s.Root)
		if s.ReadOnly {
			view.Read = append(view.Read, path)
		} else {
			view.Write = append(view.Write, path)
		}
		if s.Store != 0 {
			view.Write = append(view.Write, fmt.Sprintf("/proc/self/fd/%d", s.Store))
		}
	}
	if err := confine.DropAllThreads(capDACOverride, capFowner); err != nil {
		return err
	}
	files, err := confine.Files(view)
	if err != nil {
		return err
	}
	calls, err := confine.Calls(false, false)
	if err != nil {
		return err
	}
	for _, lacks := range []string{files, calls} {
		if lacks != "" {
			say.Warn("the share server is not confined by %s: this host's kernel has none", lacks)
		}
	}
	return nil
}

func (s shareSpec) serve() error {
	unix.CloseOnExec(s.Root)
	root := os.NewFile(uintptr(s.Root), s.Name)
	defer root.Close()
	stream, err := fd.Take("stream", s.Stream, fd.Stream)
	if err != nil {
		return fmt.Errorf("share %s: %w", s.Name, err)
	}
	var store *os.File
	if s.Store != 0 {
		unix.CloseOnExec(s.Store)
		store = os.NewFile(uintptr(s.Store), "shadows of "+s.Name)
		defer store.Close()
	}
	return share.Serve(context.Background(), stream, share.Export{Root: root, ReadOnly: s.ReadOnly,
		Hidden: s.Hidden, Protected: s.Protected, Shadowed: s.Shadowed, Store: store, HiddenInodes: s.Ours, GuestUID: s.UID, GuestGID: s.GID})
}
