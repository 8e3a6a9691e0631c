package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
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
	"sb/lib/session"

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

// machine is an sb-vm whose guest is this process.
func (s *standIn) machine(ready *os.File) error {
	guest := s.files["guest"]
	conn, err := net.FileConn(guest)
	guest.Close()
	if err != nil {
		return err
	}
	fd.Ready(ready, say.Version)
	died := make(chan error, 1)
	switch {
	case s.will("dies-when-ready"):
		return s.death()
	case s.will("is-silent"):
		return s.wait()
	}
	go s.noteWire("frames")
	go session.Serve(conn, func(c session.Command, sv *session.Served) {
		note(filepath.Join(s.dir, "commands"), c)
		if c.Prepare != nil {
			s.prepare(sv)
			return
		}
		if c.Unpack || c.Pack != nil {
			s.archive(c, sv)
			return
		}
		if c.Export {
			s.export(sv)
			return
		}
		if end, ok := s.guest(c, sv); ok {
			died <- end
		}
	})
	told := make(chan error, 1)
	go func() { told <- s.wait() }()
	select {
	case err := <-died:
		return err
	case err := <-told:
		return err
	}
}

// death is a machine's, with the last lines of its console.
func (s *standIn) death() error {
	err := errors.New("the machine ended: QEMU: signal: killed")
	for n := range 60 {
		err = say.WithHint(err, "console: %d \x1b[31m", n)
	}
	return err
}

// guest runs a command of the host's. Words with @ are about the machine; others
// are run here. ok: the machine ends, with err.
func (s *standIn) guest(c session.Command, sv *session.Served) (err error, ok bool) {
	switch c.Args[0] {
	case "@die":
		return s.death(), true
	case "@poweroff":
		return nil, true
	case "@die-after-exit":
		sv.Exit(session.Status{Code: 7})
		return s.death(), true
	case "@terminal":
		standInTerminal(c, sv)
	case "@unread":
		fmt.Fprintln(sv.Stdout(), "up")
		s.awaitFile("go")
		sv.Exit(session.Status{Code: 5})
	case "@lies":
		sv.Exit(session.Status{Code: 126, Error: "no\nhint: --allow evil.example\x1b[2J" + strings.Repeat("x", 10_000)})
	case "@garbage":
		sv.Stdout().Write([]byte("x"))
		return nil, false // no exit frame
	default:
		standInCommand(c, sv)
	}
	return nil, false
}

// awaitFile waits until a file is beside the stand-in.
func (s *standIn) awaitFile(name string) {
	for {
		if _, err := os.Stat(filepath.Join(s.dir, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// standInTerminal shows what it is told of the terminal, and ends at a q.
func standInTerminal(c session.Command, sv *session.Served) {
	fmt.Fprintf(sv.Stdout(), "tty=%v %dx%d TERM=%s\r\n", c.TTY, c.Rows, c.Cols, c.Env["TERM"])
	for {
		in, err := sv.Input()
		switch {
		case err != nil:
			return
		case in.Rows > 0:
			fmt.Fprintf(sv.Stdout(), "resized %dx%d\r\n", in.Rows, in.Cols)
		case strings.Contains(string(in.Stdin), "q"):
			sv.Exit(session.Status{Code: 9})
			return
		default:
			fmt.Fprintf(sv.Stdout(), "typed %q\r\n", in.Stdin)
		}
	}
}

// standInCommand runs a command here, as the guest would.
func standInCommand(c session.Command, sv *session.Served) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdout, cmd.Stderr = sv.Stdout(), sv.Stderr()
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.WaitDelay = time.Second
	stdin, _ := cmd.StdinPipe()
	if err := cmd.Start(); err != nil {
		code := 126
		if errors.Is(err, exec.ErrNotFound) {
			code = 127
		}
		sv.Exit(session.Status{Code: code, Error: err.Error()})
		return
	}
	go func() {
		defer stdin.Close()
		for {
			in, err := sv.Input()
			if err != nil {
				cmd.Process.Kill() // the host is gone
				return
			}
			if in.EOF {
				stdin.Close()
			}
			if in.Signal != 0 {
				cmd.Process.Signal(in.Signal)
			}
			stdin.Write(in.Stdin)
		}
	}()
	cmd.Wait()
	st := session.Status{Code: cmd.ProcessState.ExitCode()}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		st = session.Status{Signal: int(ws.Signal())}
	}
	sv.Exit(st)
}

// standInImage stands in for sb-image. The files image and kernel beside it say
// that there is one; image.json is what show says.
func standInImage(args []string) error {
	s := &standIn{name: "sb-image", signals: make(chan os.Signal, 1)}
	self, _ := os.Executable()
	s.dir = filepath.Dir(self)
	verb := strings.Join(args[:min(len(args), 1)], "")
	if verb == "kernel" {
		verb = "kernel-" + args[1]
	}
	group, _ := unix.Getpgid(0)
	note(filepath.Join(s.dir, "sb-image.starts"), started{os.Getpid(), group, args, os.Environ(), inheritedFDs()})
	text, _ := os.ReadFile(filepath.Join(s.dir, "sb-image.does"))
	s.does = strings.Fields(string(text))
	if s.will(verb + "-fails") {
		return say.WithHint(fmt.Errorf("%s: it is broken", verb), "mend it")
	}
	if s.will(verb + "-waits") {
		signal.Notify(s.signals, syscall.SIGTERM, syscall.SIGINT)
		say.Note("fetching")
		<-s.signals
		if s.will("undoes-slowly") {
			s.awaitFile("go")
		}
		note(filepath.Join(s.dir, "undone"), verb)
		return errors.New("interrupted")
	}
	if verb == "add" {
		return s.addImage(args[len(args)-1])
	}
	there := func(file string) error {
		if _, err := os.Stat(filepath.Join(s.dir, file)); err != nil {
			return fmt.Errorf("no %s is there", file)
		}
		return nil
	}
	switch verb {
	case "show":
		file := "image"
		if _, err := os.Stat(filepath.Join(s.dir, "builds")); err == nil && strings.HasPrefix(args[1], "env:") {
			file = args[1]
		}
		if err := there(file); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(s.dir, args[1]+".json"))
		if err != nil {
			text, err = os.ReadFile(filepath.Join(s.dir, "image.json"))
		}
		if rest, ok := strings.CutPrefix(string(text), "{"); ok {
			text = fmt.Appendf(nil, `{"path":%q,%s`, filepath.Join(s.dir, "image"), rest)
		}
		os.Stdout.Write(text)
		return err
	case "pull":
		say.Note("fetching %s", args[1])
		return os.WriteFile(filepath.Join(s.dir, "image"), nil, 0o600)
	case "kernel-show":
		if err := there("kernel"); err != nil {
			return err
		}
		fmt.Println(filepath.Join(s.dir, "kernel"))
	case "kernel-install":
		fmt.Println(filepath.Join(s.dir, "kernel"))
		return os.WriteFile(filepath.Join(s.dir, "kernel"), nil, 0o600)
	case "disk":
		return os.WriteFile(args[1], []byte(strings.Repeat("disk\n", 100)), 0o600)
	}
	return nil
}
