package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/reason"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// started is what a stand-in notes of a start, a line of JSON in NAME.starts.
type started struct {
	PID   int
	Group int // its process group
	Args  []string
	Env   []string
	FDs   map[int]string // what it inherited, and what that is
}

// standIn stands in for sb-gate, sb-dns or sb-vm. What is not as usual about its
// n-th start is on line n of NAME.does beside it, as words; the last line holds
// for every later start.
type standIn struct {
	name, dir string
	does      []string
	fds       map[string]int // by flag
	files     map[string]*os.File
	leash     <-chan struct{}
	signals   chan os.Signal
}

func newStandIn(name string, args []string) *standIn {
	s := &standIn{name: name, fds: map[string]int{}, signals: make(chan os.Signal, 1)}
	inherited := inheritedFDs()
	self, _ := os.Executable()
	s.dir = filepath.Dir(self)
	for _, a := range args {
		if flag, n, ok := strings.Cut(strings.TrimPrefix(a, "--"), "="); ok && flag != "fd" {
			s.fds[flag], _ = strconv.Atoi(n)
		}
	}
	group, _ := unix.Getpgid(0)
	n := note(filepath.Join(s.dir, name+".starts"), started{os.Getpid(), group, args, os.Environ(), inherited})
	text, _ := os.ReadFile(filepath.Join(s.dir, name+".does"))
	lines := strings.Split(string(text), "\n")
	s.does = strings.Fields(lines[min(n, len(lines))-1])
	return s
}

// inheritedFDs are the descriptors that are open without close-on-exec.
func inheritedFDs() map[int]string {
	open := map[int]string{}
	for n := range 256 {
		if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			open[n], _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n))
		}
	}
	return open
}

// note appends v to a file as a line, and returns how many it has now.
func note(path string, v any) int {
	b, _ := json.Marshal(v)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	f.Write(append(b, '\n'))
	all, _ := os.ReadFile(path)
	return strings.Count(string(all), "\n")
}

func (s *standIn) will(word string) bool { return slices.Contains(s.does, word) }

// after is what stands behind the colon in WORD:TEXT, with _ for blanks.
func (s *standIn) after(word string) (string, bool) {
	for _, w := range s.does {
		if text, ok := strings.CutPrefix(w, word+":"); ok {
			return strings.ReplaceAll(text, "_", " "), true
		}
	}
	return "", false
}

// kinds are what each descriptor must be.
var kinds = map[string]fd.Kind{"frames": fd.Dgram, "dns": fd.Stream, "ctl": fd.Stream, "guest": fd.Stream, "broker": fd.Dgram, "secrets": fd.Stream, "ca-out": fd.Output, "audit": fd.Output, "ready": fd.Output, "leash": fd.Pipe}

// takeAll takes what it was given and closes what else it inherited.
func (s *standIn) takeAll() error {
	s.files = map[string]*os.File{}
	for flag, n := range s.fds {
		f, err := fd.Take(flag, n, kinds[flag])
		if err != nil {
			return err
		}
		s.files[flag] = f
	}
	return fd.CloseRest()
}

func (s *standIn) run() error {
	signal.Notify(s.signals, syscall.SIGTERM, syscall.SIGINT)
	if err := s.takeAll(); err != nil {
		return err
	}
	ready := s.files["ready"]
	s.leash = fd.Leash(s.files["leash"])
	if text, ok := s.after("warns"); ok {
		say.Warn("%s", text)
	}
	if s.will("leaves-a-process") {
		c := exec.Command("/bin/sleep", "1000")
		c.Stderr = os.Stderr
		c.Start()
		note(filepath.Join(s.dir, "left"), c.Process.Pid)
	}
	switch {
	case s.will("fails"):
		return say.WithHint(errors.New("no such thing\nreally none"), "do this first")
	case s.will("is-mute"):
		return say.Exit(3)
	case s.will("is-never-ready"):
		return s.wait()
	}
	if text, ok := s.after("says"); ok {
		fmt.Fprintln(ready, text)
		ready.Close()
		return s.wait()
	}
	switch s.name {
	case "sb-vm":
		return s.machine(ready)
	case "keeper":
		return s.keeper(ready)
	case "sb-broker":
		return s.broker(ready)
	}
	return s.part(ready)
}

// wait waits until it is told to end.
func (s *standIn) wait() error {
	select {
	case <-s.leash:
	case <-s.signals:
		note(filepath.Join(s.dir, s.name+".told"), "to end")
		if s.will("is-stubborn") {
			<-s.leash
		}
		if text, ok := s.after("last-words"); ok {
			return errors.New(text)
		}
	}
	return nil
}

// part is a gate or a resolver.
func (s *standIn) part(ready *os.File) error {
	log := s.files["audit"]
	if log == nil {
		log = os.Stdout
	}
	if s.name == "sb-gate" {
		line := audit.Line{Time: time.Now(), Verdict: audit.Note, Gate: audit.Run, Reason: reason.GateStart}
		log.Write(line.Append(nil))
	}
	fd.Ready(ready, say.Version)
	switch {
	case s.will("dies-when-ready"):
		return errors.New("it broke")
	case s.name == "sb-dns":
		go s.noteWire("dns")
	default:
		s.files["frames"].WriteString("a frame")
		s.files["dns"].WriteString("a record")
	}
	return s.obey()
}

// obey answers sb-run until it is told to end.
func (s *standIn) obey() error {
	ended := make(chan error, 1)
	control := s.files["ctl"]
	if control == nil {
		return s.wait()
	}
	if s.will("closes-ctl") {
		control.Close()
		return s.wait()
	}
	c, err := ctl.NewConn(control)
	if err != nil {
		return err
	}
	go func() { ended <- s.answer(c) }()
	if s.will("rotates") || s.will("rotates-often") {
		c.Send(ctl.Message{{Key: "event", Value: "rotate"}})
	}
	told := make(chan error, 1)
	go func() { told <- s.wait() }()
	select {
	case err := <-ended:
		return err
	case err := <-told:
		return err
	}
}

// noteWire notes the first that comes over a wire.
func (s *standIn) noteWire(name string) {
	b := make([]byte, 100)
	n, _ := s.files[name].Read(b)
	note(filepath.Join(s.dir, "wires"), name+": "+string(b[:n]))
}

func (s *standIn) answer(c *ctl.Conn) error {
	rotated := 0
	for {
		m, files, err := c.Receive()
		if err != nil {
			return nil
		}
		if s.will("answers-slowly") {
			time.Sleep(time.Second)
		}
		if s.will("is-deaf") {
			continue
		}
		answer := ctl.Message{{Key: "ok", Value: m.Get("ask")}}
		switch {
		case m.Get("ask") == "audit" && len(files) == 1:
			log := files[0]
			line := audit.Line{Time: time.Now(), Verdict: audit.Deny, Gate: audit.DNS, Name: "after.example", Reason: reason.NoAllowRule}
			log.Write(line.Append(nil))
			log.Close()
			rotated++
		case m.Get("ask") == "totals":
			text, _ := os.ReadFile(filepath.Join(s.dir, "totals"))
			for l := range strings.Lines(string(text)) {
				answer = append(answer, ctl.Pair{Key: "total", Value: strings.TrimSpace(l)})
			}
		}
		note(filepath.Join(s.dir, s.name+".asked"), m.Get("ask"))
		if err := c.Send(answer); err != nil {
			return err
		}
		if m.Get("ask") == "audit" && s.will("rotates-often") && rotated < 100 {
			c.Send(ctl.Message{{Key: "event", Value: "rotate"}})
		}
	}
}
