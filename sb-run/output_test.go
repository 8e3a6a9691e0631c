//go:build linux

package main

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mischief is a command that asks for the title and the clipboard, and leaves the
// mouse and a colour on.
const mischief = `printf 'one\033[21ttwo\033]52;c;?\007three\033[?1000h\033[31mfour'; exit 4`

const (
	unfiltered = "one\x1b[21ttwo\x1b]52;c;?\athree\x1b[?1000h\x1b[31mfour"
	filtered   = "onetwothree\x1b[?1000h\x1b[31mfour"
	undone     = "\x1b[?1000l\x1b[m"
	spared     = "sb-run: the terminal was spared 1 clipboard read, 1 title report (--terminal=raw passes everything)"
)

// TestTerminalFilter: a terminal gets what the filter lets through, and is left as it
// was; what is no terminal gets everything, and so does one that asked for it.
func TestTerminalFilter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		flags  []string
		config string
		want   string // on the screen
	}{
		{"a terminal", nil, "", filtered + undone + spared},
		{"a terminal for us alone", []string{"--no-tty"}, "", filtered + undone + spared},
		{"the flag", []string{"--terminal=raw"}, "", unfiltered},
		{"the configuration", nil, `terminal = "raw"`, unfiltered},
		{"the flag and the configuration", []string{"--terminal=filter"}, `terminal = "raw"`, filtered + undone + spared},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if c.config != "" {
				s.config(c.config)
			}
			r, master, slave := s.onTerminal(append(append([]string{"img", "--allow", "a.example"}, c.flags...), "--", "sh", "-c", mischief)...)
			if got := r.wait(); got.code != 4 {
				t.Errorf("exit code %d", got.code)
			}
			slave.Close()
			r.untilShown(master, c.want)
			if c.want == unfiltered && strings.Contains(r.out.String(), undone) {
				t.Errorf("it is undone: %q", r.out.String())
			}
		})
	}
}

// untilShown waits until the screen is exactly that, and a newline at most.
func (r *running) untilShown(master *os.File, want string) {
	r.s.t.Helper()
	for end := time.Now().Add(patience); strings.TrimRight(r.out.String(), "\r\n") != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.s.t.Fatalf("the screen is %q, want %q", r.out.String(), want)
		}
	}
}

// TestTerminalOfOne: each of stdout and stderr is looked at alone, and what is not a
// terminal gets every byte.
func TestTerminalOfOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	master, slave := openTerminal(t, 40, 120)
	cmd := s.cmd("img", "--allow", "a.example", "--", "sh", "-c", "exec 3>&1; { "+strings.TrimSuffix(mischief, "; exit 4")+"; } | tee /dev/fd/3 >&2; exit 4")
	cmd.Stderr = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r := s.start(cmd)
	var screen lockedBuffer
	go io.Copy(&screen, master)
	if got := r.wait(); got.code != 4 || got.stdout != unfiltered {
		t.Errorf("exit code %d, stdout %q", got.code, got.stdout)
	}
	for end := time.Now().Add(patience); !strings.Contains(screen.String(), spared) && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	if want := filtered + undone + spared + "\r\n"; screen.String() != want {
		t.Errorf("stderr %q, want %q", screen.String(), want)
	}
}

// TestTerminalUndone: however the run ends, the terminal is left as it was.
func TestTerminalUndone(t *testing.T) {
	t.Parallel()
	const full = `printf '\033[?1049h\033[?25l\033[>1uup\n'; sleep 1000`
	for _, c := range []struct {
		name string
		end  func(s *stage, r *running)
		code int
	}{
		{"by SIGTERM", func(s *stage, r *running) { r.cmd.Process.Signal(syscall.SIGTERM) }, 143},
		{"by the death of the machine", func(s *stage, r *running) { kill(s.t, s.starts("sb-vm")[0].PID) }, 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			r, _, slave := s.onTerminal("img", "--allow", "a.example", "--", "sh", "-c", full)
			r.untilUp()
			if strings.Contains(r.out.String(), "\x1b[?1049l") {
				t.Error("control: it is undone while the command runs")
			}
			c.end(s, r)
			if got := r.wait(); got.code != c.code {
				t.Errorf("exit code %d", got.code)
			}
			slave.Close()
			for end := time.Now().Add(patience); !strings.Contains(r.out.String(), "up\n\x1b[<1u\x1b[?1049l\x1b[?25h"); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it is not undone: %q", r.out.String())
				}
			}
		})
	}
}

// TestTerminalStuck: a terminal that takes nothing keeps no signal waiting.
func TestTerminalStuck(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	master, slave := openTerminal(t, 40, 120)
	// What is said to stderr comes before the flood, or it would be behind it.
	cmd := s.cmd("img", "--allow", "a.example", "--", "sh", "-c", "echo up >&2; i=0; while ! test -e go && test $((i+=1)) -lt 3000; do sleep 0.02; done; printf '\\033[?1000h'; yes")
	cmd.Stdin, cmd.Stdout = slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	r := s.start(cmd)
	r.until("the command", func() bool { return strings.Contains(r.errs.String(), "up\n") })
	s.goOn()
	r.until("the flood", func() bool {
		n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCINQ)
		return err == nil && n > 1000
	})
	r.cmd.Process.Signal(syscall.SIGTERM)
	if got := r.wait(); got.code != 143 {
		t.Errorf("exit code %d", got.code)
	}
}

// TestDescribe: the command is told of our terminal, but not against its environment.
func TestDescribe(t *testing.T) {
	for _, c := range []struct{ host, guest, want string }{
		{"TERM=xterm COLORTERM=truecolor LANG=de_DE.UTF-8", "", "COLORTERM=truecolor LANG=C.UTF-8 TERM=xterm"},
		{"TERM=xterm LANG=de_DE.UTF-8", "TERM=vt100 LANG=fr_FR.UTF-8", "LANG=fr_FR.UTF-8 TERM=vt100"},
		{"COLORTERM=truecolor LC_CTYPE=UTF-8", "COLORTERM=", "COLORTERM= LANG=C.UTF-8"},
		{"LANG=de_DE.UTF-8", "LC_ALL=C", "LC_ALL=C"},
		{"LC_ALL=C LANG=de_DE.UTF-8", "", ""},
		{"LANG=de_DE.ISO-8859-1", "", ""},
		{"LANG=de_DE.utf8@euro", "", "LANG=C.UTF-8"},
	} {
		for _, name := range []string{"TERM", "COLORTERM", "LC_ALL", "LC_CTYPE", "LANG"} {
			t.Setenv(name, "")
		}
		for _, kv := range strings.Fields(c.host) {
			name, v, _ := strings.Cut(kv, "=")
			t.Setenv(name, v)
		}
		env := map[string]string{}
		for _, kv := range strings.Fields(c.guest) {
			name, v, _ := strings.Cut(kv, "=")
			env[name] = v
		}
		describe(env)
		var got []string
		for _, name := range []string{"COLORTERM", "LANG", "LC_ALL", "TERM"} {
			if v, ok := env[name]; ok {
				got = append(got, name+"="+v)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("host %s, guest %s: %q, want %s", c.host, c.guest, got, c.want)
		}
	}
}
