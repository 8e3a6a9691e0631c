package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"sb/lib/confine"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// confineMain is `sb-vm confine`, a process that gives away what
// QEMU does not need and then becomes QEMU.
func confineMain(args []string) error {
	flags := say.Flags("sb-vm confine", "[--root] [--read P]… [--write P]… [--exec P]… -- COMMAND…",
		"Runs a command that sees only the files named, without network, sockets or privileges. A process of sb-vm's own.")
	flags.SetInterspersed(false)
	root := flags.Bool("root", false, "make the files named the whole file system (needs a mount namespace)")
	read := flags.StringArray("read", nil, "a file or directory to read (`PATH`)")
	write := flags.StringArray("write", nil, "a file or directory to write (`PATH`)")
	execs := flags.StringArray("exec", nil, "a program to start (`PATH`)")
	show := flags.Int("show-opens", -1, "have opens for writing answered by whoever reads a stream socket (descriptor `N`)")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return say.Usage("sb-vm confine needs a command")
	}
	// Capabilities are a thread's: the one that gives them up does the exec.
	runtime.LockOSThread()
	v := confine.View{Read: *read, Write: *write, Exec: *execs}
	if *root {
		if err := confine.NewRoot(v); err != nil {
			return err
		}
	}
	if err := confine.DropCapabilities(); err != nil {
		return err
	}
	files, err := confine.Files(v)
	if err != nil {
		return err
	}
	// The exec below needs its call; QEMU's own filter then takes it away.
	calls, err := confine.Calls(false, true)
	if err != nil {
		return err
	}
	for _, lacks := range []string{files, calls} {
		if lacks != "" {
			say.Warn("QEMU is not confined by %s: this host's kernel has none", lacks)
		}
	}
	// A change of credentials may have cleared it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if *show >= 0 {
		if err := showOpens(*show); err != nil {
			return err
		}
	}
	argv := flags.Args()
	return fmt.Errorf("start %s: %w", argv[0], unix.Exec(argv[0], argv, os.Environ()))
}

// startConfined starts argv confined, in the best namespaces that this host
// lets it have, and says what is missing. fill fills in descriptors and output;
// one of those is number show if the command's opens for writing are to be shown.
// It must be called on a thread that is kept until the command has ended.
func startConfined(v confine.View, show int, argv []string, fill func(*exec.Cmd)) (*exec.Cmd, error) {
	var refused []string
	for _, level := range confine.Levels() {
		args := []string{"confine"}
		if level != confine.None {
			args = append(args, "--root")
		}
		for flag, paths := range map[string][]string{"--read": v.Read, "--write": v.Write, "--exec": v.Exec} {
			for _, p := range paths {
				args = append(args, flag, p)
			}
		}
		if show >= 0 {
			args = append(args, "--show-opens", strconv.Itoa(show))
		}
		cmd := exec.Command("/proc/self/exe", append(append(args, "--"), argv...)...)
		cmd.Args[0] = "sb-vm"
		cmd.Env = []string{"LC_ALL=C"}
		fill(cmd)
		cmd.SysProcAttr = confine.Apart(level, false)
		err := cmd.Start()
		if err == nil {
			if lacks := level.Lacks(); lacks != "" {
				say.Warn("QEMU is not confined by %s (%s)", lacks, strings.Join(refused, "; "))
			}
			return cmd, nil
		}
		refused = append(refused, err.Error())
	}
	return nil, fmt.Errorf("%s", strings.Join(refused, "; "))
}
