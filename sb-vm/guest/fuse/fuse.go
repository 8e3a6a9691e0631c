//go:build linux

// Package fuse is the guest's half of a share: it mounts a FUSE file system and
// copies between /dev/fuse and a stream, on whose other end the host serves a
// directory (sb-vm/share). It runs as a process of its own and understands
// nothing of what it copies but the length of a message.
package fuse

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/sb-vm/share/fusewire"
)

// Main mounts a share and relays it until the stream ends or the share is
// unmounted:
//
//	[--port=N | --port-path=/dev/vportNpM] [--ready=N] [--read-only] [--source=NAME] MOUNTPOINT
//	--port=N --ready=N --order=N
//
// An order is what Order makes, up to the end of the descriptor: with it this process
// can be started before it is known what is to be mounted. The end alone ends it.
//
// The readiness line (lib/fd) is written on --ready once the host has answered
// the kernel's INIT: from then on the mount works. Whoever runs this process
// must not touch the mount before, and this process never does: it would wait
// for itself.
//
// After Main returns the process must end: only that closes /dev/fuse for good,
// upon which whoever uses the mount gets ENOTCONN instead of waiting.
func Main(args []string) error {
	fs := say.Flags("share-relay", "[flags] MOUNTPOINT", "Mounts a directory that the host serves on a stream.")
	port := fs.Int("port", -1, "descriptor of the stream")
	portPath := fs.String("port-path", "", "path of the stream's device, instead of --port")
	ready := fs.Int("ready", -1, "descriptor for the readiness line")
	readOnly := fs.Bool("read-only", false, "mount read-only (the host decides for itself as well)")
	order := fs.Int("order", -1, "descriptor to read the mount point from, and whether read-only")
	source := fs.String("source", "share", "what mount shows as the source")
	if err := say.Parse(fs, args); err != nil {
		return err
	}
	target := fs.Arg(0)
	if *order >= 0 {
		var err error
		if target, *readOnly, err = awaitOrder(*order); target == "" {
			return err
		}
	} else if fs.NArg() != 1 || (*port < 0) == (*portPath == "") {
		return say.WithHint(say.Usage("want one mount point, and --port or --port-path"), "%s --help lists the flags", fs.Name())
	}
	stream, err := openPort(*port, *portPath)
	if err != nil {
		return err
	}
	var readyFile *os.File
	if *ready >= 0 {
		if readyFile, err = fd.Take("ready", *ready, fd.Output); err != nil {
			return err
		}
	}
	dev, err := mount(*source, target, *readOnly)
	if err != nil {
		return err
	}
	r := newRelay(dev, stream, func() error {
		readAhead(target)
		return fd.Ready(readyFile, say.Version)
	})
	return r.run()
}

// Order is what a relay that waits for one is to do.
func Order(target string, readOnly bool) []byte {
	if readOnly {
		return []byte("ro " + target)
	}
	return []byte("rw " + target)
}

// awaitOrder reads an order. None, before the end, is the end of the relay.
func awaitOrder(n int) (target string, readOnly bool, err error) {
	f, err := fd.Take("order", n, fd.Pipe)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, unix.PathMax+4))
	if err != nil || len(b) == 0 {
		return "", false, err
	}
	how, target, ok := strings.Cut(string(b), " ")
	if !ok || how != "ro" && how != "rw" || target == "" {
		return "", false, fmt.Errorf("read what to mount: %.100q is no order", b)
	}
	return target, how == "ro", nil
}

func openPort(n int, path string) (int, error) {
	if path != "" {
		n, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open the share's port %s: %w", path, err)
		}
		return n, nil
	}
	unix.CloseOnExec(n)
	// Its threads wait in the kernel: one wake-up less for each message.
	if err := unix.SetNonblock(n, false); err != nil {
		return -1, fmt.Errorf("take the share's port: descriptor %d: %w", n, err)
	}
	return n, nil
}

// mount mounts a FUSE file system on dir and returns its device. The kernel
// checks modes (default_permissions) for everybody (allow_other): they are the
// only ones who tell the guest's users apart.
func mount(source, dir string, readOnly bool) (int, error) {
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, say.WithHint(fmt.Errorf("open /dev/fuse: %w", err), "the kernel needs its fuse module")
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", dev)
	if err := unix.Mount(source, dir, "fuse.sb", flags, data); err != nil {
		unix.Close(dev)
		if errors.Is(err, unix.EPERM) {
			err = say.WithHint(err, "only root can mount")
		}
		return -1, fmt.Errorf("mount the share on %s: %w", dir, err)
	}
	return dev, nil
}

// readAhead lets the kernel read as much ahead as fits in one request, not the
// 128 KiB that it begins with: long files are read at more than twice the speed.
// It is found in /proc and set in /sys; without them it stays as it is.
func readAhead(dir string) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return
	}
	defer f.Close()
	device := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 36 35 98:0 /root /mount/point …, with blanks and such as \040
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && unescape.Replace(fields[4]) == filepath.Clean(dir) {
			device = fields[2] // the last one lies on top
		}
	}
	if device != "" {
		kib := strconv.Itoa(fusewire.MaxData >> 10)
		os.WriteFile("/sys/class/bdi/"+device+"/read_ahead_kb", []byte(kib), 0)
	}
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
