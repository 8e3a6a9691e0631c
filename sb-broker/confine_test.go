//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	case "broker":
		say.Main("sb-broker", run)
	}
	os.Exit(m.Run())
}

func confinedMain() int {
	file, addr := os.Getenv("SB_BROKER_TEST_FILE"), os.Getenv("SB_BROKER_TEST_ADDR")
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
	try := func(when string) {
		f, err := os.Open(file)
		if err == nil {
			f.Close()
		}
		fmt.Println(when, "open:", reasonOf(err))
		fmt.Println(when, "write:", reasonOf(os.WriteFile(file+".new", nil, 0o600)))
		fmt.Println(when, "exec:", reasonOf(exec.Command("/bin/true").Run()))
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		fmt.Println(when, "dial:", reasonOf(err))
		_, err = net.Listen("tcp", "127.0.0.1:0")
		fmt.Println(when, "listen:", reasonOf(err))
		fmt.Println(when, "hand:", reasonOf(hands()))
		var lim unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_CORE, &lim)
		dumps, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		fmt.Println(when, "core:", lim.Max, dumps)
	}
	try("before")
	if err := confineSelf(); err != nil {
		fmt.Println(err)
		return 1
	}
	try("after")
	return 0
}

func dup(f *os.File) *os.File {
	d, err := fd.Dup(f)
	if err != nil {
		panic(err)
	}
	return d
}

func reasonOf(err error) string {
	switch {
	case err == nil:
		return "yes"
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EPERM):
		return "refused"
	}
	return err.Error()
}

// TestConfined: once it serves, the broker opens no file, makes no socket, starts no
// program and leaves no core file; what it is handed goes on working.
func TestConfined(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), inTest+"=confined", "SB_BROKER_TEST_FILE="+file, "SB_BROKER_TEST_ADDR="+ln.Addr().String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	for _, what := range []string{"open", "write", "exec", "dial", "listen", "hand"} {
		if !strings.Contains(string(out), "before "+what+": yes\n") {
			t.Errorf("before it is confined, %s does not work", what)
		}
	}
	if stderr.Len() > 0 {
		t.Logf("this kernel lacks something, so only the rest is looked at: %s", stderr.String())
	}
	for _, line := range []string{"open: refused", "write: refused", "exec: refused", "dial: refused", "listen: refused", "hand: yes", "core: 0 0"} {
		if stderr.Len() == 0 && !strings.Contains(string(out), "after "+line+"\n") {
			t.Errorf("after it was confined, not %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
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
	m, err := manifest.Parse("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Credentials = append(m.Credentials, anthropic())
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "m.toml"), text, 0o600)
	os.WriteFile(filepath.Join(dir, "roots.pem"), theWorld().pem(), 0o600)
	gates, brokers, _ := fd.Pair("broker", fd.Dgram)
	keepers, mine, _ := fd.Pair("secrets", fd.Stream)
	caR, caW, _ := os.Pipe()
	readyR, readyW, _ := os.Pipe()
	cmd := exec.Command("/proc/self/exe", "--manifest", filepath.Join(dir, "m.toml"), "--roots", filepath.Join(dir, "roots.pem"), "--broker=3", "--secrets=4", "--ca-out=5", "--ready=6")
	cmd.ExtraFiles = []*os.File{brokers, mine, caW, readyW}
	cmd.Env = append(os.Environ(), inTest+"=broker")
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	other := &world{t: t, port: 443, hands: w.hands, server: w.server, secrets: w.secrets, ends: map[uint64]chan string{}, more: make(chan struct{})}
	go other.keep(keepers)
	if other.wire, err = handover.New(gates); err != nil {
		t.Fatal(err)
	}
	go other.listen()
	certificate, _ := bufio.NewReader(caR).ReadString(0)
	if err := fd.WaitReady(readyR, say.Version); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	other.trust = poolOf(certificate)
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
		t.Errorf("it ended: %v\n%s", err, said.String())
	}
	files, _ := os.ReadDir(dir)
	if strings.Contains(said.String(), secret[3:]) || len(files) != 2 || strings.Contains(string(text), secret) {
		t.Errorf("it said %q, and left %v", said.String(), files)
	}
}
