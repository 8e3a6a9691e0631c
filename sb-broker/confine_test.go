//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/confine/confinetest"
	"sb/lib/fd"
	"sb/lib/handover"
	"sb/lib/manifest"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

const inTest = "SB_BROKER_TEST"

// TestMain is also what the broker is, confined: a copy of the test program that
// says what it can do before and after.
func TestMain(m *testing.M) {
	switch os.Getenv(inTest) {
	case "confined":
		os.Exit(confinedMain())
	case "keeper":
		say.Main("sb-broker", dispatch)
	case "broker":
		say.Main("sb-broker", run)
	}
	os.Exit(m.Run())
}

func confinedMain() int {
	near, far, err := fd.Pair("x", fd.Dgram)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	hands := func() error { // a descriptor that it is handed goes on coming
		w, err := handover.New(dup(near))
		if err != nil {
			return err
		}
		v, err := handover.New(dup(far))
		if err != nil {
			return err
		}
		if err := v.Hand(1, apiName, mustAddrPort("192.0.2.1:443"), 0, 1); err != nil {
			return err
		}
		_, err = w.Next()
		return err
	}
	listens := func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err }
	dumps := func() error {
		var lim unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_CORE, &lim)
		if can, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); can == 0 && lim.Max == 0 {
			return os.ErrPermission
		}
		return nil
	}
	return confinetest.Main(confineSelf, append(confinetest.Usual(),
		confinetest.Probe{Name: "listen", Try: listens}, confinetest.Probe{Name: "hand", Try: hands}, confinetest.Probe{Name: "core", Try: dumps})...)
}

func dup(f *os.File) *os.File {
	d, err := fd.Dup(f)
	if err != nil {
		panic(err)
	}
	return d
}

// TestConfined: once it serves, the broker opens no file, makes no socket, starts no
// program and leaves no core file; what it is handed goes on working.
func TestConfined(t *testing.T) {
	confinetest.Run(t, inTest+"=confined", "open: refused", "write: refused", "exec: refused", "tcp: refused", "listen: refused", "hand: yes", "core: refused")
}

// process is a broker in a process of its own, started as sb-run does.
type process struct {
	*world // whose server and secrets it has
	cmd    *exec.Cmd
	dir    string
	said   bytes.Buffer
	given  string // the manifest
}

// apart starts a broker for w's server in a process of its own.
func (w *world) apart(t *testing.T) *process {
	t.Helper()
	m, err := manifest.Parse("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Credentials = append(m.Credentials, anthropic())
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{dir: t.TempDir(), given: string(text)}
	os.WriteFile(filepath.Join(p.dir, "m.toml"), text, 0o600)
	os.WriteFile(filepath.Join(p.dir, "roots.pem"), theWorld().pem(), 0o600)
	gates, brokers, _ := fd.Pair("broker", fd.Dgram)
	keepers, mine, _ := fd.Pair("secrets", fd.Stream)
	caR, caW, _ := os.Pipe()
	readyR, readyW, _ := os.Pipe()
	p.cmd = exec.Command("/proc/self/exe", "--manifest", filepath.Join(p.dir, "m.toml"), "--roots", filepath.Join(p.dir, "roots.pem"), "--broker=3", "--secrets=4", "--ca-out=5", "--ready=6")
	p.cmd.ExtraFiles = []*os.File{brokers, mine, caW, readyW}
	p.cmd.Env = append(os.Environ(), inTest+"=broker")
	p.cmd.Dir = p.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	for _, f := range p.cmd.ExtraFiles {
		f.Close()
	}
	p.world = &world{t: t, port: 443, hands: w.hands, server: w.server, secrets: w.secrets, ends: map[uint64]chan string{}, more: make(chan struct{})}
	go p.keep(keepers)
	if p.wire, err = handover.New(gates); err != nil {
		t.Fatal(err)
	}
	go p.listen()
	certificate, _ := bufio.NewReader(caR).ReadString(0)
	if err := fd.WaitReady(readyR, say.Version); err != nil {
		t.Fatalf("%v: %s", err, p.said.String())
	}
	p.trust = poolOf(certificate)
	return p
}

// number is a line of the process's status, in KiB.
func (p *process) number(key string) (n int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(text), "\n"+key+":")
	fmt.Sscan(rest, &n)
	return n
}

// TestMemory: 200 answers that are being given, asked for at once, hold no more than
// 28 MiB, as streams of a few connections or with a connection each; and
// when those have ended, it is given back.
func TestMemory(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		next := make(chan bool)
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			for ok := true; ok; ok = <-next {
				io.CopyN(rw, letters{}, 100<<10)
				rw.(http.Flusher).Flush()
			}
		}, anthropic())
		p := w.apart(t)
		before := p.number("VmRSS")
		all, left := make(chan error), make(chan bool)
		for range 4 {
			c := p.client(http2)
			for range 50 {
				go func() {
					res, err := c.Do(request("GET", "/", nil))
					if err == nil {
						_, err = io.CopyN(io.Discard, res.Body, 100<<10)
					}
					if all <- err; err == nil {
						<-left
						res.Body.Close()
						c.CloseIdleConnections()
					}
				}()
			}
		}
		for range 200 {
			if err := <-all; err != nil {
				t.Fatal(err)
			}
		}
		p.holds(before, 28<<10, fmt.Sprintf("HTTP/2 %v: 200 answers", http2))
		close(left)
		if !http2 { // whose connections are the clients' to keep
			p.holds(before, 10<<10, "what has ended")
		}
		close(next)
	}
}

// holds waits until the process holds no more than most KiB besides before.
func (p *process) holds(before, most int, what string) {
	p.t.Helper()
	rss := p.number("VmRSS")
	for late := time.Now().Add(10 * time.Second); rss-before > most && time.Now().Before(late); rss = p.number("VmRSS") {
		time.Sleep(settled / 10)
	}
	p.t.Logf("%s: %d KiB besides %d", what, rss-before, before)
	if rss == 0 || rss-before > most {
		p.t.Errorf("%s: %d KiB are held besides %d", what, rss-before, before)
	}
}

// TestE21Canary: a secret that was put into a request is in no argument, variable,
// message or file of the broker's, and its memory is closed to others. It is a
// process of its own here, started as sb-run does.
func TestE21Canary(t *testing.T) {
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		c, in, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		in.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + "HTTP/1.1 200 OK\r\nX: " + secret + "\r\n\r\n") // net/http logs such a thing
		in.Flush()
		time.Sleep(10 * time.Millisecond)
	}, anthropic())
	other := w.apart(t)
	cmd, dir := other.cmd, other.dir
	if got := other.ask(other.client(false), request("GET", "/", nil)); got.body != "ok" || w.hands.last(t).Header.Get("X-Api-Key") != secret {
		t.Fatalf("%+v", got)
	}
	other.ended(1, "done")
	proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	status, err := os.ReadFile(proc + "limits")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(status)), " "), "Max core file size 0 0") {
		t.Errorf("core files are not off: %v\n%s", err, status)
	}
	for _, file := range []string{"cmdline", "environ"} {
		if text, err := os.ReadFile(proc + file); err != nil || strings.Contains(string(text), secret) {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended: %v\n%s", err, other.said.String())
	}
	files, _ := os.ReadDir(dir)
	if strings.Contains(other.said.String(), secret[3:]) || len(files) != 2 || strings.Contains(other.given, secret) {
		t.Errorf("it said %q, and left %v", other.said.String(), files)
	}
}
