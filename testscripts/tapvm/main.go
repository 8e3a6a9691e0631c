// Tapvm stands in for sb-vm and sb-image, so that sb-run can be run whole without
// booting a machine: the guest is a network namespace, on whose frames tapwire
// works, and its commands run there. It is told by its name which of the two it
// is; tapwire is beside it.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/lib/session"
)

func main() {
	runtime.LockOSThread() // whose end is the parent's that the children are told of
	name := filepath.Base(os.Args[0])
	err := errors.New("call it sb-vm or sb-image")
	switch name {
	case "sb-vm":
		err = machine(os.Args[1:])
	case "sb-image":
		err = image(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: error: %v\n", name, err)
		os.Exit(1)
	}
}

// image says that there is an image and a kernel, and makes an empty disk.
func image(args []string) error {
	switch strings.Join(args[:min(len(args), 1)], "") {
	case "show":
		fmt.Println(`{"ref":"img","digest":"sha256:00","path":"/an/image","config":{"Env":["PATH=/bin:/usr/bin:/sbin:/usr/sbin"],"Cmd":["true"]}}`)
	case "kernel":
		fmt.Println("/a/kernel")
	case "disk":
		return os.WriteFile(args[1], nil, 0o600)
	}
	return nil
}

// machine is the guest, until its leash ends or a signal comes.
func machine(args []string) error {
	files := map[string]*os.File{}
	for _, a := range args {
		flag, n, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if num, err := strconv.Atoi(n); err == nil {
			syscall.CloseOnExec(num)
			files[flag] = os.NewFile(uintptr(num), flag)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	tap := exec.Command(filepath.Join(filepath.Dir(self), "tapwire"), "-fd=3", "-mtu="+mtu(args))
	tap.ExtraFiles = []*os.File{files["frames"]}
	tap.Stderr = os.Stderr
	tap.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := tap.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tap.Start(); err != nil {
		return err
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		return fmt.Errorf("tapwire: %w", err)
	}
	conn, err := net.FileConn(files["guest"])
	if err != nil {
		return err
	}
	files["guest"].Close()
	if err := fd.Ready(files["ready"], say.Version); err != nil {
		return err
	}
	go session.Serve(conn, func(c session.Command, sv *session.Served) { command(tap.Process.Pid, c, sv) })
	<-fd.Leash(files["leash"])
	return nil
}

// mtu is the wire's, as the manifest has it.
func mtu(args []string) string {
	for i, a := range args {
		if a == "--manifest" && i+1 < len(args) {
			text, _ := os.ReadFile(args[i+1])
			for l := range strings.Lines(string(text)) {
				if k, v, ok := strings.Cut(l, "="); ok && strings.TrimSpace(k) == "mtu" {
					return strings.TrimSpace(v)
				}
			}
		}
	}
	return "1500"
}

// command runs in the guest's network, with the gateway as its nameserver. What it
// leaves behind ends with it.
func command(pid int, c session.Command, sv *session.Served) {
	script := `printf 'nameserver 198.18.0.1\n' >"$0" && mount --bind "$0" /etc/resolv.conf && exec "$@"`
	resolv, err := os.CreateTemp("", "sb-resolv-")
	if err != nil {
		sv.Exit(session.Status{Code: 126, Error: err.Error()})
		return
	}
	resolv.Close()
	defer os.Remove(resolv.Name())
	cmd := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(pid), "--net", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, resolv.Name()}, c.Args...)...)
	cmd.Stdout, cmd.Stderr = sv.Stdout(), sv.Stderr()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(os.Args[0])+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		sv.Exit(session.Status{Code: 126, Error: err.Error()})
		return
	}
	go feed(sv, stdin, cmd)
	cmd.Wait()
	st := session.Status{Code: cmd.ProcessState.ExitCode()}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		st = session.Status{Signal: int(ws.Signal())}
	}
	sv.Exit(st)
}

// feed hands the host's input to a command, and ends it when the host is gone.
func feed(sv *session.Served, stdin io.WriteCloser, cmd *exec.Cmd) {
	defer stdin.Close()
	for {
		in, err := sv.Input()
		if err != nil {
			cmd.Process.Kill()
			return
		}
		if in.EOF {
			stdin.Close()
		}
		stdin.Write(in.Stdin)
	}
}
