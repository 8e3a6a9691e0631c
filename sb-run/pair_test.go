package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestPair: the command has the pairs, joined, by their numbers, and nothing
// else that sb-run opened.
func TestPair(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	got := s.run("pair", "a=dgram", "b_2=stream", "--", "sh", "-c", `
echo hello >&$a_a; head -c 6 <&$a_b
{ echo one; echo two; } >&$b_2_b; head -n 1 <&$b_2_a
for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  test -e /proc/$$/fd/$n && case " 0 1 2 $a_a $a_b $b_2_a $b_2_b " in *" $n "*) ;; *) echo "also $n: $(readlink /proc/$$/fd/$n)";; esac
done
test $a_a != $a_b && test $a_b != $b_2_a && echo "$A|$#"`, "sh", "x")
	got.want(t, 0)
	if got.stdout != "hello\none\n|1\n" {
		t.Errorf("stdout %q", got.stdout)
	}
	if got := s.run("pair", "a=stream", "--", "sh", "-c", "exit 7"); got.code != 7 {
		t.Errorf("exit code %d, want the command's", got.code)
	}
}

// TestPairBad: exit codes are as in a shell; a mistake is named.
func TestPairBad(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	file := filepath.Join(s.work, "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(s.work, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"a=stream -- no-such-command", 127, "run no-such-command: "},
		{"a=stream -- ./none", 127, "run ./none: "},
		{"a=stream -- ./file", 126, "run ./file: "},
		{"a=stream -- /", 126, "run /: "},
		{"a=stream -- ./script", 126, "run ./script: "},
		{"", 125, "sb-run pair needs NAME=dgram or NAME=stream, and a command behind --\nsb-run: hint: sb-run pair wire=stream -- sh\n"},
		{"a=stream", 125, "sb-run pair needs "},
		{"a=stream --", 125, "sb-run pair needs "},
		{"-- true", 125, "sb-run pair needs "},
		{"a=seqpacket -- true", 125, `"a=seqpacket" is not NAME=dgram or NAME=stream`},
		{"a -- true", 125, `"a" is not NAME=dgram or NAME=stream`},
		{"=stream -- true", 125, `"=stream" is not NAME=dgram or NAME=stream`},
		{"1a=stream -- true", 125, `"1a=stream" is not`},
		{"a-b=stream -- true", 125, `"a-b=stream" is not`},
		{"a=stream a=dgram -- true", 125, "the pair a is asked for twice"},
		{"a=stream b=stream c=stream d=stream e=stream f=stream g=stream -- true", 125, "7 pairs, at most 6"},
		{"--many a=stream -- true", 125, "unknown flag: --many"},
	} {
		s.run(append([]string{"pair"}, strings.Fields(c.args)...)...).want(t, c.code, c.want)
	}
}

// TestAttach: a command in a machine that somebody else booted, one after the
// other; the stream is taken over, and nothing else.
func TestAttach(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if err := os.WriteFile(filepath.Join(s.work, "m.toml"), []byte("[run]\ncommand = [\"sh\", \"-c\", \"echo $A; exit 5\"]\nuser = \"me\"\nworkdir = \"/x\"\nenv = {A = \"of the manifest\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "PATH="+s.dir+":"+os.Getenv("PATH"))
	got := s.run("pair", "guest=stream", "leash=stream", "--", "sh", "-c", `
sb-vm --guest=$guest_a --leash=$leash_a &
sb-run attach --guest=$guest_b -- sh -c "echo first; exit 3"; echo "code $?"
echo third | sb-run attach --guest=$guest_b --manifest m.toml; echo "code $?"
sb-run attach --guest=$guest_b -- sh -c "kill -TERM \$\$"; echo "code $?"
sb-run attach --guest=$guest_b -- yes | head -n 1
sb-run attach --guest=$guest_b -- no-such-command; echo "code $?"
sb-run attach; echo "code $?"
sb-run attach --guest=77 -- true; echo "code $?"
sb-run attach --guest=1 -- true; echo "code $?"
sb-run attach --guest=$guest_b --manifest none.toml; echo "code $?"
sb-run attach --guest=$guest_b -t -- true; echo "code $?"
`)
	got.want(t, 0, "sb-run: error: sb-run attach needs --guest\nsb-run: hint: sb-run pair guest=stream makes one\n",
		"take guest: descriptor 77 is not open\n", "take guest: descriptor 1 is not a stream socket\n", "read the manifest: open none.toml: no such file", "--tty: stdin is no terminal")
	if want := "first\ncode 3\nof the manifest\ncode 5\ncode 143\ny\ncode 127\n" + strings.Repeat("code 125\n", 5); got.stdout != want {
		t.Errorf("stdout %q, want %q", got.stdout, want)
	}
}

// TestAttachSignal: a signal ends attach while it waits for the machine and while
// the command runs; the stream is left to the next.
func TestAttachSignal(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.env = append(s.env, "PATH="+s.dir+":"+os.Getenv("PATH"))
	r := s.start(s.shell(`exec "$0" pair guest=stream leash=stream -- sh -c '
sb-run attach --guest=$guest_b -- true & echo $! >pid; : >up; wait $!; echo "code $?"
sb-vm --guest=$guest_a --leash=$leash_a &
sb-run attach --guest=$guest_b -- sh -c "echo up; sleep 1000" & echo $! >pid; wait $!; echo "code $?"
sb-run attach --guest=$guest_b -- sh -c "exit 3"; echo "code $?"'`))
	r.until("the first", func() bool { _, err := os.Stat(filepath.Join(s.work, "up")); return err == nil })
	signalTo := func(sig syscall.Signal) {
		text, _ := os.ReadFile(filepath.Join(s.work, "pid"))
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		// It has taken the signals when it has greeted the guest.
		r.until("its signals", func() bool { return catches(pid, sig) })
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	signalTo(syscall.SIGTERM)
	r.untilUp()
	signalTo(syscall.SIGHUP)
	got := r.wait()
	got.want(t, 0, "!error")
	if want := "code 143\nup\ncode 129\ncode 3\n"; got.stdout != want {
		t.Errorf("stdout %q, want %q", got.stdout, want)
	}
}

// catches reports whether a process handles a signal.
func catches(pid int, sig syscall.Signal) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "SigCgt:\t")
	hex, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(hex, 16, 64)
	return err == nil && mask&(1<<(sig-1)) != 0
}
