package netns

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sb/lib/audit"
	"sb/testscripts/capture"
	"sb/testscripts/listed"
	"sb/testscripts/world"

	"golang.org/x/sys/unix"
)

// outside is the device by which everything leaves the host.
const outside = "sb-host"

// watch begins a capture on it, once what went before is over.
func watch(t *testing.T) *capture.Capture {
	t.Helper()
	// The kernel's own neighbour discovery is not the gate's; nothing here is IPv6.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+outside+"/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	c, err := capture.StartQuiet(outside)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// settled ends the capture when every connection in it has ended. Nothing but
// flows may have left.
func settled(t *testing.T, c *capture.Capture) []capture.Flow {
	t.Helper()
	flows, left, err := c.Settle(patience)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range left {
		t.Errorf("left the host: %s", what)
	}
	return flows
}

// end ends the gate and the resolver as sb-run does.
func (l *lab) end() {
	l.t.Helper()
	for _, cmd := range []*exec.Cmd{l.gate, l.dns} {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
}

// mixed is what a guest does in which good and bad are mixed; each line is a
// command, and what its output must be like (as of path.Match, for its last line).
const mixed = `
curl -sS --max-time 20 -o /dev/null -w %{size_download} http://allowed.example.org/?size=3000000		3000000
head -c 2000000 /dev/zero | curl -sS --max-time 20 --data-binary @- http://allowed.example.org/up		served POST*body=2000000
curl -sS --max-time 20 --cacert $CA -o /dev/null -w %{size_download} https://allowed.example.org/?size=1000000		1000000
head -c 700000 /dev/zero | curl -sS --max-time 20 --cacert $CA --data-binary @- https://allowed.example.org:8443/up		served POST*body=700000
curl -sS --max-time 20 http://45.67.0.20/by-address		served GET*
probe echo ssh.example.org:22 400000		echoed 400015*
probe udp udp.example.org:7777 some-text		got some-text*
ping -c 2 -i 1.1 -W 3 allowed.example.org | grep -q ttl= && echo pinged		pinged
probe dns text.example.org TXT		rcode=0*text of text.example.org*
probe dnstcp allowed.example.org		rcode=0*
probe cut allowed.example.org:80 'GET /?size=50000000 HTTP/1.1\r\nHost: allowed.example.org\r\n\r\n' 200000		cut after*
probe cut ssh.example.org:22 3000000 100000		cut after*
probe cut ssh.example.org:22 100 1		cut after 100*
timeout -s KILL 0.5 curl -sS --limit-rate 300k -o /dev/null http://allowed.example.org/?size=20000000; echo killed		killed
probe tcp closed.example.org:9999		refused*
probe tcp gone.example.org:9999		refused*
curl -sS --max-time 10 http://denied.example.org/		*resolve*
probe tcp 45.67.0.30:80		refused*
probe tcp 198.18.200.7:443		refused*
probe tcp 198.18.0.1:8080		refused*
probe tls allowed.example.org:443 denied.example.org $CA		*access denied*
probe tls $(probe dns allowed.example.org | grep -o '198[0-9.]*'):443 - $CA		*access denied*
probe send allowed.example.org:80 'GET / HTTP/1.1\r\nHost: denied.example.org\r\n\r\n'		got HTTP/1.1 403*
probe send allowed.example.org:80 'CONNECT denied.example.org:443 HTTP/1.1\r\nHost: allowed.example.org\r\n\r\n'		got HTTP/1.1 403*
probe send allowed.example.org:8080 'neither of both\r\n\r\n'		*e*
probe send allowed.example.org:22 'x'		*e*
probe udp allowed.example.org:443 quic		*refused*
probe udp 45.67.0.30:7777 text		*refused*
ping -c 1 -W 1 45.67.0.30 | grep -c ttl=		0
`

// mixedRules are the rules for it.
var mixedRules = []string{"allowed.example.org", "45.67.0.20", "ssh.example.org:22", "udp.example.org:7777/udp", "closed.example.org:9999", "gone.example.org:9999", "dns:text.example.org"}

// play runs every line of a load at once in the guest and checks what each says.
func play(t *testing.T, l *lab, load string) {
	t.Helper()
	done := make(chan string)
	n := 0
	for line := range strings.Lines(load) {
		cmd, want, ok := strings.Cut(strings.TrimSpace(line), "\t\t")
		if !ok {
			continue
		}
		n++
		go func() {
			out, _ := l.in("sh", "-c", "CA="+filepath.Join(world.Dir(), "ca.pem")+"\n"+cmd)
			all := strings.Split(strings.TrimSpace(out), "\n")
			if last := all[len(all)-1]; !like(want, last) {
				done <- fmt.Sprintf("%s: %q, want %q", cmd, out, want)
				return
			}
			done <- ""
		}()
	}
	for range n {
		if bad := <-done; bad != "" {
			t.Error(bad)
		}
	}
}

// like matches a text with a pattern in which * is any part of it.
func like(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for i, p := range parts[1:] {
		if i == len(parts)-2 {
			return strings.HasSuffix(text, p)
		}
		_, rest, ok := strings.Cut(text, p)
		if !ok {
			return false
		}
		text = rest
	}
	return text == ""
}

// TestCapture: what a capture outside sees is what the log lists, each flow with
// its bytes, under a load of good and bad; and a flow that is not in the log, or
// one byte more or less, is found.
func TestCapture(t *testing.T) {
	c := watch(t)
	l := newLab(t, manifest{allow: slices.Clone(mixedRules)})
	idle := l.inCommand("probe", "hold", "ssh.example.org:22", "x")
	out, _ := idle.StdoutPipe()
	idle.Start()
	defer idle.Wait()
	if said := make([]byte, 4); true {
		io.ReadFull(out, said)
		if string(said) != "held" {
			t.Errorf("control: the idle connection says %q", said)
		}
	}
	play(t, l, mixed)
	play(t, l, mixed)
	l.end()
	flows, log := settled(t, c), l.log()
	for _, w := range listed.Compare(flows, log) {
		t.Error(w)
	}
	counts(t, flows, log)
	if !t.Failed() {
		found(t, flows, log)
	}
	if t.Failed() {
		for _, line := range log {
			t.Log(line)
		}
	}
}

// counts checks that there was something to compare of each kind.
func counts(t *testing.T, flows []capture.Flow, log []audit.Line) {
	kinds, bytes := map[string]int{}, int64(0)
	for _, f := range flows {
		k := f.Proto
		switch {
		case f.Remote.Port() == 53:
			k = "look"
		case f.FIN:
			k += " ended"
		case f.RST && f.Open:
			k += " cut"
		case f.Proto == "tcp":
			k += " refused"
		}
		kinds[k]++
		bytes += f.Up + f.Down
	}
	for _, k := range []string{"tcp ended", "tcp cut", "tcp refused", "udp", "icmp", "look"} {
		if kinds[k] == 0 {
			t.Errorf("control: no flow of the kind %q among %v", k, kinds)
		}
	}
	t.Logf("%d flows, %d bytes, %d lines: %v", len(flows), bytes, len(log), kinds)
}

// found plants what the comparison must find, in what agreed.
func found(t *testing.T, flows []capture.Flow, log []audit.Line) {
	t.Helper()
	for _, dir := range []string{"up", "down"} {
		for _, by := range []int64{-1, 1} {
			for i, line := range log {
				if line.Word(dir) == "" || line.Word("up") == "0" {
					continue
				}
				cut := line.Gate == audit.TCP && line.Reason != "done"
				changed := slices.Clone(log)
				changed[i].Words = add(line.Words, dir, by)
				wrong := listed.Compare(flows, changed)
				if len(wrong) == 0 && !cut {
					t.Errorf("%s of %q %+d is not found", dir, line, by)
				}
			}
		}
	}
	for i, line := range log {
		if line.Verdict == audit.Close || line.Verdict == audit.Allow && line.Gate == audit.TCP || line.Gate == audit.Look && line.Reason == "done" {
			if len(listed.Compare(flows, slices.Delete(slices.Clone(log), i, i+1))) == 0 {
				t.Errorf("it is not found that there is no line %q", line)
			}
		}
	}
}

func add(words []audit.Word, key string, n int64) []audit.Word {
	words = slices.Clone(words)
	for i, w := range words {
		if w.Key == key {
			was, _ := strconv.ParseInt(w.Value, 10, 64)
			words[i] = audit.Int(key, was+n)
		}
	}
	return words
}

// TestCaptureUnlisted: a flow of another process, with as many bytes as one of
// the gate's, is not taken for it. The control is the same without it.
func TestCaptureUnlisted(t *testing.T) {
	for _, planted := range []string{"", "tcp", "udp", "icmp", "raw"} {
		t.Run(planted, func(t *testing.T) {
			c := watch(t)
			l := newLab(t, manifest{allow: slices.Clone(mixedRules)})
			play(t, l, "probe echo ssh.example.org:22 100\t\techoed*\nprobe udp udp.example.org:7777 text\t\tgot text*\n")
			switch planted {
			case "tcp":
				conn, err := net.Dial("tcp", world.CDN+":22")
				if err != nil {
					t.Fatal(err)
				}
				conn.Write(make([]byte, 100))
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
				conn.Close()
			case "udp":
				conn, err := net.Dial("udp", world.CDN+":7777")
				if err != nil {
					t.Fatal(err)
				}
				conn.Write([]byte("text"))
				conn.Read(make([]byte, 10))
				conn.Close()
			case "icmp":
				exec.Command("ping", "-c", "1", world.CDN).Run()
			}
			l.end()
			if planted == "raw" {
				sendFrame(t)
			}
			flows, left, err := c.Settle(patience)
			if err != nil {
				t.Fatal(err)
			}
			wrong := append(listed.Compare(flows, l.log()), left...)
			if (planted != "") != (len(wrong) == 1) || len(wrong) > 1 {
				t.Errorf("found %d: %q", len(wrong), wrong)
			}
		})
	}
}

// sendFrame sends what is of no protocol that is known.
func sendFrame(t *testing.T) {
	t.Helper()
	dev, err := net.InterfaceByName(outside)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	frame := append(make([]byte, 12), 0x88, 0xb5, 1, 2, 3) // an EtherType for experiments (IEEE 802)
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index, Halen: 6}); err != nil {
		t.Fatal(err)
	}
}
