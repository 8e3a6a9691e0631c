// Firstlight is `make run`: it boots sandboxes on this machine, as it is, and
// shows what their network reaches and what it does not. It fails if anything is
// not as it says.
//
//	firstlight BINDIR
//
// The allowed host is the package mirror that the machine's own apt is
// configured with; the denied one is where the machine's Go gets its modules.
package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: firstlight BINDIR")
		os.Exit(2)
	}
	if err := show(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "\nmake run: this is not as it should be: %v\n", err)
		os.Exit(1)
	}
}

func show(bin string) error {
	d := &demo{bin: bin}
	steps := []func() error{d.findHosts, d.listen, d.prepare, d.closed, d.opened, d.next}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// demo is what the steps find out and use.
type demo struct {
	bin     string
	mirror  *url.URL // allowed
	rule    string   // that allows it
	other   string   // not allowed, a name that this host has just resolved
	address string   // of our own listener, on an interface of this host
	accepts atomic.Int64
}

func (d *demo) findHosts() error {
	var err error
	if d.mirror, err = mirror(); err != nil {
		return err
	}
	at, err := lookUp(d.mirror.Hostname())
	if err != nil {
		return err
	}
	if d.rule, err = d.ruleFor(d.mirror.Hostname(), at); err != nil {
		return err
	}
	if d.other, err = otherHost(d.mirror.Hostname()); err != nil {
		return err
	}
	otherAt, err := lookUp(d.other)
	if err != nil {
		return err
	}
	say("allowed     %s, where this host's apt gets its packages", d.rule)
	if strings.Contains(d.rule, "@") {
		say("            (it is at %s, in a range that is closed unless a rule says so: hence the @)", at)
	}
	say("not allowed %s, which this host resolved a moment ago to %s", d.other, otherAt)
	return nil
}

// mirror asks apt for the first package mirror that it is configured with.
func mirror() (*url.URL, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return nil, fmt.Errorf("ask apt for its mirror: %w", err)
	}
	for l := range strings.Lines(string(out)) {
		if u, err := url.Parse(strings.TrimSpace(l)); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" {
			return u, nil
		}
	}
	return nil, errors.New("apt is configured with no mirror on the network")
}

// otherHost is another name that this host resolves.
func otherHost(not string) (string, error) {
	out, err := exec.Command("go", "env", "GOPROXY", "GOSUMDB").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its proxy: %w", err)
	}
	for _, word := range regexp.MustCompile(`[,|\s]+`).Split(string(out), -1) {
		host := word
		if u, err := url.Parse(word); err == nil && u.Host != "" {
			host = u.Hostname()
		}
		if host == not || !strings.Contains(host, ".") {
			continue
		}
		if _, err := lookUp(host); err == nil {
			return host, nil
		}
	}
	return "", errors.New("no other name that this host resolves was found")
}

func lookUp(host string) (netip.Addr, error) {
	ips, err := net.LookupHost(host)
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(ips[0])
}

// ruleFor is the rule that allows a host, into the range of its address where
// that is a closed one.
func (d *demo) ruleFor(host string, at netip.Addr) (string, error) {
	out, err := exec.Command(filepath.Join(d.bin, "sb-policy"), "check", "--allow", host, host+":80@"+at.String()).CombinedOutput()
	if err == nil {
		return host, nil
	}
	if !strings.Contains(string(out), "address-class") {
		return "", fmt.Errorf("sb-policy check: %s", out)
	}
	return fmt.Sprintf("%s@%s", host, netip.PrefixFrom(at, at.BitLen())), nil
}

// listen opens a port on an interface of this host, and counts who comes.
func (d *demo) listen() error {
	// The address that this host would speak from; nothing is sent.
	c, err := net.Dial("udp4", net.JoinHostPort(d.mirror.Hostname(), "9"))
	if err != nil {
		return err
	}
	ip, _, _ := net.SplitHostPort(c.LocalAddr().String())
	c.Close()
	l, err := net.Listen("tcp4", ip+":0")
	if err != nil {
		return err
	}
	d.address = l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.accepts.Add(1)
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")
			c.Close()
		}
	}()
	// From the host itself it is reached: the control of what follows.
	control, err := net.DialTimeout("tcp", d.address, 5*time.Second)
	if err != nil {
		return fmt.Errorf("reach our own listener: %w", err)
	}
	control.Close()
	for end := time.Now().Add(5 * time.Second); d.accepts.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("our own listener accepted nothing")
		}
	}
	d.accepts.Store(0)
	say("not allowed %s, where make run listens on this host's own interface (reached from the host: yes)", d.address)
	return nil
}

// prepare fetches the kernel and makes the image, if they are not there.
func (d *demo) prepare() error {
	for _, want := range []struct{ show, get []string }{
		{[]string{"kernel", "show"}, []string{"kernel", "install"}},
		{[]string{"show", image}, []string{"pull", image}},
	} {
		if exec.Command(filepath.Join(d.bin, "sb-image"), want.show...).Run() == nil {
			continue
		}
		say("\n$ sb-image %s", strings.Join(want.get, " "))
		cmd := exec.Command(filepath.Join(d.bin, "sb-image"), want.get...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("sb-image %s: %w", strings.Join(want.get, " "), err)
		}
		say("(%v)", time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// image is that of the shell profile.
const image = "bootstrap:bookworm?include=ca-certificates,curl,git,iproute2,iputils-ping,less,procps"

// run runs a script in a sandbox and returns what it printed and the audit log.
func (d *demo) run(script string, allow ...string) (out, log string, err error) {
	args := []string{"shell", "--no-tty", "--show-policy-log"}
	for _, a := range allow {
		args = append(args, "--allow", a)
	}
	dir, err := os.MkdirTemp("", "first-light-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	say("\n$ sb-run shell --allow %s", strings.Join(allow, " --allow "))
	cmd := exec.Command(filepath.Join(d.bin, "sb-run"), append(args, "--", "sh", "-c", script)...)
	cmd.Dir = dir
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("sb-run: %w\n%s%s", err, o.String(), e.String())
	}
	for l := range strings.Lines(e.String()) {
		if strings.HasPrefix(l, "20") {
			log += l
		} else if strings.Contains(l, "warning") {
			say("%s", strings.TrimSpace(l))
		}
	}
	say("(started, ran and ended in %v)", time.Since(began).Round(100*time.Millisecond))
	return o.String(), log, nil
}

const fetches = `
fetch() { printf '%%-34s ' "$1"; code=$(curl -sS -o /dev/null --max-time 20 -w '%%{http_code}' "$2" 2>&1) && echo "answered, HTTP $code" || echo "refused ($(echo "$code" | sed -n 's/^curl: //p'))"; }
fetch "the allowed mirror:" %[1]s
fetch "the other name:" http://%[2]s/
fetch "this host's own port:" http://%[3]s/
`

// closed is the sandbox that reaches one host.
func (d *demo) closed() error {
	facts := fmt.Sprintf(fetches, d.mirror, d.other, d.address)
	out, log, err := d.run(facts+`
echo "as root ($(id -u)), with $(grep CapEff /proc/self/status | tr '\t' ' '), the default route replaced:"
ip neigh replace 198.18.0.3 lladdr 5a:94:ef:e4:0c:01 dev eth0 && ip route replace default via 198.18.0.3 dev eth0 onlink && ip route | head -1
`+facts, d.rule)
	if err != nil {
		return err
	}
	say("%s", strings.TrimSpace(out))
	lines := regexp.MustCompile(`(?m)^(the .*|this .*):\s+(.*)$`).FindAllStringSubmatch(out, -1)
	if len(lines) != 6 {
		return fmt.Errorf("%d facts of 6", len(lines))
	}
	for i, l := range lines {
		answered := strings.HasPrefix(l[2], "answered")
		if answered != (i%3 == 0) {
			return fmt.Errorf("%s %s", l[1], l[2])
		}
	}
	if n := d.accepts.Load(); n != 0 {
		return fmt.Errorf("this host's own port was reached %d times", n)
	}
	say("\nthis host's own port accepted 0 connections; the audit log says:")
	for _, want := range []string{
		`(?m)^.* allow tcp ` + regexp.QuoteMeta(d.mirror.Hostname()) + ` .*$`,
		`(?m)^.* close tcp ` + regexp.QuoteMeta(d.mirror.Hostname()) + ` .*$`,
		`(?m)^.* deny dns ` + regexp.QuoteMeta(d.other) + ` .*$`,
		`(?m)^.* deny tcp - ` + regexp.QuoteMeta(d.address) + ` .*$`,
	} {
		l := regexp.MustCompile(want).FindString(log)
		if l == "" {
			return fmt.Errorf("no line %s in the audit log:\n%s", want, log)
		}
		say("%s", l)
	}
	if l := regexp.MustCompile(`(?m)^.* look ` + regexp.QuoteMeta(d.other) + ` .*$`).FindString(log); l != "" {
		return fmt.Errorf("the name that is not allowed was asked for: %s", l)
	}
	say("and no line in which the host's resolver was asked for %s.", d.other)
	return nil
}

// opened is the control: with a rule for it, the same port is reached.
func (d *demo) opened() error {
	out, log, err := d.run(`curl -sS --max-time 20 http://`+d.address+`/`, d.address)
	if err != nil {
		return err
	}
	if n := d.accepts.Load(); n != 1 || !strings.Contains(out, "hello") {
		return fmt.Errorf("with its rule, this host's own port was reached %d times, not once: %q", n, out)
	}
	l := regexp.MustCompile(`(?m)^.* allow tcp - ` + regexp.QuoteMeta(d.address) + ` .*$`).FindString(log)
	if l == "" {
		return fmt.Errorf("no allow line for %s in the audit log:\n%s", d.address, log)
	}
	say("this host's own port: %sit accepted 1 connection; the audit log says:\n%s", out, l)
	return nil
}

func (d *demo) next() error {
	say(`
It is as it should be. Next:
  export PATH=%s:$PATH
  sb-run shell                                    a shell in this directory, which reaches nothing
  sb-run shell --allow %s    one that reaches Debian's packages
  sb-run debian:bookworm --allow example.com -- CMD   a command in an image of a registry
  sb-policy check --allow '*.example.org' a.example.org   what a rule admits
  sb-policy log --denied                          what the last sandbox was refused
  man -l sb-run/sb-run.1`, d.bin, d.rule)
	return nil
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
