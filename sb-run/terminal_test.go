//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns the two ends of a new terminal of that size.
func openTerminal(t *testing.T, rows, cols uint16) (master, slave *os.File) {
	t.Helper()
	n, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(n), "ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(n, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	k, err := unix.IoctlGetInt(n, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", k), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	resize(t, slave, rows, cols)
	return master, slave
}

func resize(t *testing.T, f *os.File, rows, cols uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
}

func settings(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// onTerminal starts sb-run on a terminal that is its session's. The screen is
// r.out.
func (s *stage) onTerminal(args ...string) (r *running, master, slave *os.File) {
	s.t.Helper()
	master, slave = openTerminal(s.t, 40, 120)
	cmd := s.cmd(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(cmd.Env, "TERM=xterm-test")
	r = s.start(cmd)
	go io.Copy(&r.out, master)
	return r, master, slave
}

func (r *running) untilScreen(text string) {
	r.s.t.Helper()
	r.until("the screen shows "+text, func() bool { return strings.Contains(r.out.String(), text) })
}

// TestTerminal: the command has a terminal of the size of ours, keys go to it as
// they are, and ours is as before when the run ends, however it does.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(s *stage, r *running, master *os.File)
		code int
	}{
		{"by the command", func(s *stage, r *running, master *os.File) { master.WriteString("q") }, 9},
		{"by SIGTERM", func(s *stage, r *running, master *os.File) { r.cmd.Process.Signal(syscall.SIGTERM) }, 143},
		{"by SIGTERM and SIGINT", func(s *stage, r *running, master *os.File) {
			r.cmd.Process.Signal(syscall.SIGTERM)
			time.Sleep(sameSignal + 50*time.Millisecond)
			r.cmd.Process.Signal(syscall.SIGINT)
		}, 143},
		{"by the death of the machine", func(s *stage, r *running, master *os.File) { kill(s.t, s.starts("sb-vm")[0].PID) }, 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if c.name == "by SIGTERM and SIGINT" {
				s.does("sb-gate", "is-stubborn")
			}
			r, master, slave := s.onTerminal("img", "--", "@terminal")
			r.untilScreen("tty=true 40x120 TERM=xterm-test")
			before := settings(t, slave)
			if before.Lflag&unix.ICANON != 0 || before.Lflag&unix.ISIG != 0 {
				t.Error("control: the terminal is not raw while the command runs")
			}
			master.Write([]byte{3})
			r.untilScreen(`typed "\x03"`)
			resize(t, slave, 50, 132)
			r.untilScreen("resized 50x132")
			c.end(s, r, master)
			if got := r.wait(); got.code != c.code {
				t.Errorf("exit code %d, want %d", got.code, c.code)
			}
			if after := settings(t, slave); after.Lflag&unix.ICANON == 0 || after.Lflag&unix.ECHO == 0 || after.Oflag&unix.OPOST == 0 {
				t.Error("the terminal is left raw")
			}
		})
	}
}

// TestTerminalUnread: input that the command does not read keeps neither a
// resize nor a signal waiting.
func TestTerminalUnread(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, master, slave := s.onTerminal("img", "--", "@unread")
	r.untilScreen("up")
	if n := fill(t, master); n < 256<<10 {
		t.Errorf("control: %d bytes filled every buffer", n)
	}
	resize(t, slave, 50, 132)
	time.Sleep(100 * time.Millisecond) // nothing shows that it was taken, or is stuck
	r.cmd.Process.Signal(syscall.SIGTERM)
	if got := r.wait(); got.code != 143 {
		t.Errorf("exit code %d", got.code)
	}
	if after := settings(t, slave); after.Lflag&unix.ICANON == 0 {
		t.Error("the terminal is left raw")
	}
}

// TestCtrlCBefore: until the command has the terminal, Ctrl-C ends the run.
func TestCtrlCBefore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("sb-vm", "is-never-ready")
	r, master, _ := s.onTerminal("img", "--", "@terminal")
	r.untilStarts("sb-vm", 1)
	master.Write([]byte{3})
	if got := r.wait(); got.code != 130 {
		t.Errorf("exit code %d, want 130", got.code)
	}
}

// TestHangUp: a terminal that is closed ends the run.
func TestHangUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, master, slave := s.onTerminal("img", "--", "@terminal")
	r.untilScreen("tty=true")
	slave.Close()
	master.Close()
	if got := r.wait(); got.code != 129 {
		t.Errorf("exit code %d, want 129", got.code)
	}
}

// TestTerminalWanted: who has a terminal gets one, unless told otherwise.
func TestTerminalWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		stdin, stdout bool
		flags         []string
		want          string
		code          int
		stderr        string
	}{
		{"both", true, true, nil, "tty=true 40x120 TERM=xterm-test", 9, ""},
		{"both, as Docker's -it", true, true, []string{"-it"}, "tty=true 40x120", 9, ""},
		{"both, --no-tty", true, true, []string{"--no-tty"}, "tty=false 0x0 TERM=", 9, ""},
		{"stdin alone", true, false, nil, "tty=false 0x0 TERM=", 9, ""},
		{"stdin alone, -t", true, false, []string{"-t"}, "tty=true 40x120", 9, ""},
		{"stdout alone", false, true, nil, "tty=false 0x0 TERM=", 9, ""},
		{"stdout alone, -t", false, true, []string{"-t"}, "", 125, "sb-run: error: --tty: stdin is no terminal\nsb-run: hint: "},
		{"none, -t", false, false, []string{"-t"}, "", 125, "sb-run: error: --tty: stdin is no terminal\nsb-run: hint: "},
		{"both flags", true, true, []string{"-t", "--no-tty"}, "", 125, "sb-run: error: --tty and --no-tty exclude each other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			master, slave := openTerminal(t, 40, 120)
			cmd := s.cmd(append(append([]string{"img"}, c.flags...), "--", "@terminal")...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			cmd.Env = append(cmd.Env, "TERM=xterm-test")
			cmd.Stdin = strings.NewReader("q")
			if c.stdin {
				cmd.Stdin = slave
			}
			if c.stdout {
				cmd.Stdout = slave
			}
			r := s.start(cmd)
			shown := make(chan struct{})
			if c.stdout {
				go func() {
					io.Copy(&r.out, master)
					close(shown)
				}()
			}
			if c.stdin && c.code == 9 {
				r.untilScreen(c.want)
				master.WriteString("q\n")
			}
			got := r.wait()
			if c.stderr != "" {
				got.want(t, c.code, c.stderr)
			} else if got.code != c.code {
				t.Errorf("exit code %d, want %d", got.code, c.code)
			}
			slave.Close()
			if c.stdout {
				<-shown // it ends with the last who has the other side
			}
			if !strings.Contains(r.out.String(), c.want) {
				t.Errorf("stdout %q, want %q", r.out.String(), c.want)
			}
		})
	}
}

// TestBackground: a job in the background does not stop at a terminal that is
// not its own, and reads it when it comes to the foreground.
func TestBackground(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	master, slave := openTerminal(t, 40, 120)
	cmd := s.cmd()
	cmd.Args = []string{"bash", "-c", `set -m
"$0" img -- sh -c 'echo up; read x; echo "got $x"; exit 6' >out 2>err &
until test -e fore; do sleep 0.02; done
fg %1 >/dev/null`, cmd.Path}
	cmd.Path = "/bin/bash"
	cmd.Stdin, cmd.Stderr = slave, slave // bash finds its terminal by stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	r := s.start(cmd)
	out := func() string { b, _ := os.ReadFile(s.work + "/out"); return string(b) }
	r.until("the command", func() bool { return strings.Contains(out(), "up\n") })
	gate := s.starts("sb-gate")[0].PID
	n := len(noted[string](s, "sb-gate.asked"))
	r.until("heartbeats in the background", func() bool { return len(noted[string](s, "sb-gate.asked")) > n+1 })
	os.WriteFile(s.work+"/fore", nil, 0o600)
	job := parent(t, gate)
	r.until("the foreground", func() bool {
		group, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPGRP)
		return err == nil && group == job
	})
	master.WriteString("hello\n")
	if got := r.wait(); got.code != 6 || out() != "up\ngot hello\n" {
		t.Errorf("exit code %d, stdout %q", got.code, out())
	}
}

// TestClosedTerminal: a read of a terminal that is gone fails, and is not tried
// again as one in the background is.
func TestClosedTerminal(t *testing.T) {
	master, slave := openTerminal(t, 40, 120)
	master.Close()
	done := make(chan error, 1)
	go func() {
		_, err := (&input{f: slave, terminal: true}).Read(make([]byte, 1))
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("something was read")
		}
	case <-time.After(10 * backgroundPoll):
		t.Error("it is tried again")
	}
}

func parent(t *testing.T, pid int) (ppid int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fmt.Sscanf(rest[2:], "%d", &ppid)
	return ppid
}
