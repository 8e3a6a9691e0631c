package netns

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sb/testscripts/world"

	"golang.org/x/net/dns/dnsmessage"
)

// TestAnswers is an attacker's nameserver: names that are allowed and lead where
// nobody may go, by every way that an answer has.
func TestAnswers(t *testing.T) {
	zone := "." + world.Attacker
	var l *lab
	before := seen(t).Accepts
	for i, c := range []struct{ id, name, want string }{
		{"A1 a private address", "inside", "deny tcp NAME 192.168.77.10:80 address-class"},
		{"A3 the metadata service in a name", "169-254-169-254.nip", "deny tcp NAME 169.254.169.254:80 address-class"},
		{"A3 loopback in a name", "127-0-0-1.nip", "deny tcp NAME 127.0.0.1:80 address-class"},
		{"A3 the office in a name", "192-168-77-10.nip", "deny tcp NAME 192.168.77.10:80 address-class"},
		{"A2 this host in a name", "10-99-0-1.nip", "deny tcp NAME 10.99.0.1:80 address-class"},
		{"A2 this network in a name", "0-0-0-0.nip", "deny tcp NAME 0.0.0.0:80 address-class"},
		{"A2 broadcast in a name", "255-255-255-255.nip", "deny tcp NAME 255.255.255.255:80 address-class"},
		{"A2 metadata", "metadata", "deny tcp NAME 169.254.169.254:80 address-class"},
		{"A2 the gateway", "gateway", "deny tcp NAME 198.18.0.1:80 address-class"},
		{"A2 a handle", "handle", "deny tcp NAME 198.18.1.0:80 address-class"},
		{"A5 IPv4 within IPv6", "mapped", "deny tcp NAME 192.168.77.10:80 address-class"},
		{"A6 NAT64", "nat64", "deny tcp NAME [64:ff9b::c0a8:4d0a]:80 address-class"},
		{"A6 6to4", "sixtofour", "deny tcp NAME [2002:c0a8:4d0a::1]:80 address-class"},
		{"A10 an alias to a private address", "alias-inside", "deny tcp NAME 192.168.77.10:80 address-class"},
		{"A10 an alias of itself", "loop", "deny tcp NAME * no-such-name"},
	} {
		if i%8 == 0 { // the log has no line for each kind of refusal where there are many
			l = newLab(t, manifest{allow: []string{"*." + world.Attacker, "office.example.org@192.168.0.0/16"}})
		}
		t.Run(c.id, func(t *testing.T) {
			began := time.Now()
			if got := l.saysTo(c.name+zone, 80, get(c.name+zone)); !strings.Contains(got, "refused") {
				t.Errorf("%q", got)
			}
			soon(t, c.name, began)
			want := regexp.QuoteMeta(strings.ReplaceAll(c.want, "NAME", c.name+zone))
			l.hasLine(t, strings.ReplaceAll(want, `\*`, `\S+`))
		})
	}
	after := seen(t).Accepts
	for at, n := range after {
		if strings.HasPrefix(at, world.Office) && n != before[at] {
			t.Errorf("%s was reached", at)
		}
	}
	for _, name := range []string{"address" + zone, "both" + zone, "many" + zone, "office.example.org"} { // the controls
		if got := l.saysTo(name, 80, get(name)); !strings.Contains(got, "served GET /x host="+name) {
			t.Errorf("%s: %q", name, got)
		}
	}
	l.hasLine(t, "allow tcp both"+regexp.QuoteMeta(zone)+" 45.67.0.20:80 allow-rule")
}

// TestA1Rebinding: a name that leads outside at first and inside after is dialled
// only where it may be, and so is one that an alias leads to a denied name.
func TestA1Rebinding(t *testing.T) {
	name := "rebind." + world.Attacker
	l := newLab(t, manifest{allow: []string{name, "alias." + world.Attacker}, deny: []string{"denied.example.org"}})
	if got := l.saysTo(name, 80, get(name)); !strings.Contains(got, "served") {
		t.Fatalf("outside: %q", got)
	}
	l.killDNS() // a new one has nothing in mind
	l.startDNS()
	var got string
	for end := time.Now().Add(10 * time.Second); !strings.Contains(got, "refused") && time.Now().Before(end); {
		got = l.saysTo(name, 80, get(name)) // the gate remembers for a second where it was
	}
	if !strings.Contains(got, "refused") {
		t.Errorf("inside: %q", got)
	}
	l.hasLine(t, "deny tcp "+regexp.QuoteMeta(name)+" 192.168.77.10:80 address-class")
	t.Run("A10 an alias to a denied name", func(t *testing.T) {
		// Its owner may lead it where he likes; it stays the name that is proven.
		alias := "alias." + world.Attacker
		if got := l.saysTo(alias, 80, get(alias)); !strings.Contains(got, "served GET /x host="+alias) {
			t.Errorf("by its own name: %q", got)
		}
		if got := l.saysTo(alias, 80, get("denied.example.org")); !strings.Contains(got, "deny-rule") {
			t.Errorf("by the denied name: %q", got)
		}
		if _, code, _ := l.lookup("denied.example.org"); code != dnsmessage.RCodeNameError {
			t.Errorf("the denied name: %v", code)
		}
		if n := seen(t).Queries["denied.example.org"]; n != 0 {
			t.Errorf("the denied name was asked for %d times", n)
		}
	})
}

func (l *lab) killDNS() {
	l.dns.Process.Kill()
	l.dns.Wait()
}

// TestA20Tunnel: names that the guest makes up cost nothing to look up and are
// asked for within a budget when they are dialled; a name of its own rule is not.
func TestA20Tunnel(t *testing.T) {
	zone := ".tunnel." + world.Attacker
	l := newLab(t, manifest{allow: []string{"*" + zone, "allowed.example.org"}})
	count := func() (n int) {
		for name, k := range seen(t).Queries {
			if strings.HasSuffix(name, zone) {
				n += k
			}
		}
		return n
	}
	const names = 300
	var at [names]netip.Addr
	for i := range names {
		name := fmt.Sprintf("%d.%s%s", i, strings.Repeat("0123456789abcdef", 3), zone)
		a, _, err := l.lookup(name)
		if err != nil || !a.IsValid() {
			t.Fatalf("%s: %v, %v", name, a, err)
		}
		at[i] = a
	}
	if n := count(); n != 0 {
		t.Errorf("looking names up asked upstream %d times", n)
	}
	began, opened := time.Now(), 0
	for _, a := range at {
		if c, err := l.dial("tcp", netip.AddrPortFrom(a, 80).String()); err == nil {
			opened++
			c.Close()
		}
	}
	minutes := int(time.Since(began)/time.Minute) + 1
	if n := count(); opened == 0 || opened > 60*minutes || n > 2*60*minutes {
		t.Errorf("%d of %d were dialled, asked upstream %d times", opened, names, n)
	}
	l.hasLine(t, `deny tcp \S+ \S+ resolve-budget`)
	if got := l.saysTo("allowed.example.org", 80, get("allowed.example.org")); !strings.Contains(got, "served") {
		t.Errorf("a name of its own rule: %q", got)
	}
}

// TestDig is dig with everything it can send.
func TestDig(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "dns:text.example.org"}})
	for _, c := range []struct{ id, args, want string }{
		{"A27 UDP", "allowed.example.org", `status: NOERROR.*198\.18\.1\.0`},
		{"A27 TCP", "+tcp allowed.example.org", `status: NOERROR.*198\.18\.1\.0`},
		{"A27 TCP, several questions", "+tcp +keepopen allowed.example.org denied.example.org", `status: NOERROR.*198\.18\.1\.0.*status: NXDOMAIN`},
		{"A14 mixed case", "aLLowed.eXample.ORG", `status: NOERROR.*aLLowed\.eXample\.ORG\.\s+60\s+IN\s+A\s+198\.18\.1\.0`},
		{"A12 below", "x.allowed.example.org", `status: NXDOMAIN`},
		{"A12 beside", "notallowed.example.org", `status: NXDOMAIN`},
		{"A13 a dot in a label", `x\.allowed.example.org`, `status: (NXDOMAIN|FORMERR)`},
		{"A13 a NUL in a label", `allowed\000.example.org`, `status: NXDOMAIN`},
		{"A16 a final dot", "allowed.example.org.", `status: NOERROR`},
		{"A21 TXT", "allowed.example.org TXT", `status: NOERROR.*ANSWER: 0`},
		{"A21 TXT by its rule", "text.example.org TXT", `text of text\.example\.org`},
		{"A21 ANY", "+noall +comments +answer allowed.example.org ANY", `status: NOERROR.*ANSWER: 0`},
		{"A21 CNAME", "allowed.example.org CNAME", `status: NOERROR.*ANSWER: 0`},
		{"A21 NS", "example.org NS", `status: NXDOMAIN`},
		{"A21 NULL", "allowed.example.org NULL", `status: NOERROR.*ANSWER: 0`},
		{"A22 HTTPS", "allowed.example.org HTTPS", `status: NOERROR.*ANSWER: 0`},
		{"A22 SVCB", "_dns.resolver.arpa SVCB", `status: NXDOMAIN`},
		{"A22 AAAA", "allowed.example.org AAAA", `status: NOERROR.*ANSWER: 0`},
		{"A23 client subnet", "+subnet=192.0.2.0/24 allowed.example.org", `status: NOERROR.*udp: 1232.*198\.18\.1\.0`},
		{"A23 cookie and padding", "+cookie=0102030405060708 +padding=128 +nsid allowed.example.org", `status: NOERROR.*udp: 1232.*198\.18\.1\.0`},
		{"A23 an option of 400 bytes", "+ednsopt=65001:" + strings.Repeat("00", 400) + " denied.example.org", `status: NXDOMAIN.*EDE: 15 \(Blocked\)`},
		{"A24 CHAOS", "CH TXT version.bind", `status: REFUSED`},
		{"A24 HESIOD", "-c HS allowed.example.org", `status: REFUSED`},
		{"A24 NOTIFY", "+opcode=NOTIFY allowed.example.org", `status: NOTIMP`},
		{"A24 UPDATE", "+opcode=UPDATE allowed.example.org", `status: (NOTIMP|FORMERR)`},
		{"A24 STATUS", "+opcode=STATUS allowed.example.org", `status: NOTIMP`},
		{"A24 AXFR", "allowed.example.org AXFR", `(Transfer failed|ANSWER: 0)`},
		{"A24 IXFR", "allowed.example.org IXFR=1", `(Transfer failed|ANSWER: 0)`},
		{"A31 the host by Docker's name", "host.docker.internal", `status: NXDOMAIN`},
		{"A31 localhost", "localhost", `status: NXDOMAIN`},
		{"A31 the gateway's name", "_gateway", `status: NXDOMAIN`},
		{"A29 a single label", "intranet", `status: NXDOMAIN`},
		{"A28 whether DoH may be used", "use-application-dns.net", `status: NXDOMAIN`},
		{"A28 another resolver", "@" + world.Nameserver + " +time=1 +tries=1 allowed.example.org", `(timed out|refused|unreachable)`},
		{"A28 another resolver over TCP", "@" + world.Nameserver + " +tcp +time=1 +tries=1 allowed.example.org", `(timed out|refused|unreachable)`},
	} {
		t.Run(c.id, func(t *testing.T) {
			out, _ := l.in("dig", strings.Fields(c.args)...)
			if !regexp.MustCompile(`(?s)` + c.want).MatchString(out) {
				t.Errorf("dig %s says %s", c.args, out)
			}
			if m := regexp.MustCompile(`Query time: (\d+) msec`).FindStringSubmatch(out); m != nil && len(m[1]) > 3 {
				t.Errorf("dig %s: it took %s ms", c.args, m[1])
			}
		})
	}
	for name, n := range seen(t).Queries {
		if !strings.HasSuffix(name, world.Attacker) && strings.HasPrefix(name, "denied") && n > 0 {
			t.Errorf("the nameserver was asked for %s", name)
		}
	}
}

// TestA13WireNames: names whose labels read like an allowed name when somebody
// prints them.
func TestA13WireNames(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"*.example.org"}})
	ask := func(labels ...string) dnsmessage.RCode {
		msg, _ := hex.DecodeString("12ab01000001000000000000")
		for _, s := range labels {
			msg = append(append(msg, byte(len(s))), s...)
		}
		msg = append(msg, 0, 0, 1, 0, 1)
		b, err := l.ask(msg)
		if err != nil || len(b) < 12 || !bytes.Equal(b[:2], msg[:2]) {
			t.Fatalf("%q: % x, %v", labels, b, err)
		}
		return dnsmessage.RCode(b[3] & 15)
	}
	before := seen(t)
	for _, labels := range [][]string{{"x.example", "org"}, {"x.example.org"}, {"x", "example.org"}, {"evil\x00", "example", "org"}, {"a b", "example", "org"},
		{"\x1b[2J", "example", "org"}, {"a\nb", "example", "org"}, {"\u212a", "example", "org"}, {"*", "example", "org"}, {"a\\", "example", "org"}, {"-a", "example", "org"}} {
		if code := ask(labels...); code != dnsmessage.RCodeNameError && code != dnsmessage.RCodeFormatError {
			t.Errorf("%q: %v", labels, code)
		}
	}
	if code := ask("X", "eXample", "org"); code != dnsmessage.RCodeSuccess {
		t.Errorf("the control: %v", code)
	}
	for _, x := range l.log() {
		if strings.ContainsAny(x.String(), "\x00\x1b\n\\ ") && strings.ContainsAny(x.Name, "\x00\x1b\n ") && !strings.Contains(x.String(), `\x`) {
			t.Errorf("a raw byte in the log: %q", x.String())
		}
	}
	if raw, err := os.ReadFile(l.file("audit.log")); err != nil || bytes.ContainsAny(raw, "\x00\x1b\u212a") {
		t.Errorf("the log holds raw bytes: %q, %v", raw, err)
	}
	for name, n := range seen(t).Queries {
		if n != before.Queries[name] {
			t.Errorf("the nameserver was asked for %q", name)
		}
	}
}

// TestA28R17R61Elsewhere: an address that was learned anywhere else is worth
// nothing, whatever is said to it.
func TestA28R17R61Elsewhere(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	ca := filepath.Join(world.Dir(), "ca.pem")
	// The guest learns the address within an allowed connection.
	if out, err := l.in("curl", "-sS", "--max-time", "10", "--cacert", ca, "https://allowed.example.org/dns-query?name=allowed.example.org"); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	for _, args := range [][]string{
		{"--resolve", "allowed.example.org:443:" + world.CDN, "https://allowed.example.org/"},
		{"--resolve", "allowed.example.org:80:" + world.CDN, "http://allowed.example.org/"},
		{"-H", "Host: allowed.example.org", "http://" + world.CDN + "/"},
		{"-k", "https://" + world.CDN + "/"},
		{"--doh-url", "https://" + world.Nameserver + "/dns-query", "https://denied.example.org/"},
		{"--connect-to", "::" + world.CDN + ":443", "https://allowed.example.org/"},
	} {
		began := time.Now()
		out, err := l.in("curl", append([]string{"-sS", "--max-time", "10", "--cacert", ca}, args...)...)
		if err == nil || strings.Contains(out, "served") {
			t.Errorf("curl %q: %s", args, out)
		}
		soon(t, strings.Join(args, " "), began)
	}
	for _, port := range []int{53, 853, 443} {
		if c, err := l.dial("tcp", fmt.Sprintf("%s:%d", world.Nameserver, port)); err == nil {
			c.Close()
			t.Errorf("port %d of another resolver is open", port)
		}
		l.hasLine(t, fmt.Sprintf("deny tcp - %s:%d unresolved-address", regexp.QuoteMeta(world.Nameserver), port))
	}
}

// TestA29HostsFile: what the host's own files say about an allowed name counts,
// and leads no further than any answer does.
func TestA29HostsFile(t *testing.T) {
	path := filepath.Join(world.Dir(), "hosts")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(path, old, 0o644)
	more := "127.0.0.1 lo.hosts.test\n192.168.77.10 lan.hosts.test intranet\n" + world.Other + " out.hosts.test\n"
	if err := os.WriteFile(path, append(old, more...), 0o644); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, manifest{allow: []string{"*.hosts.test", "intranet"}})
	for _, name := range []string{"lo.hosts.test", "lan.hosts.test", "intranet"} {
		if got := l.saysTo(name, 80, get(name)); !strings.Contains(got, "refused") {
			t.Errorf("%s: %q", name, got)
		}
		l.hasLine(t, "deny tcp "+name+` \S+ address-class`)
	}
	if got := l.saysTo("out.hosts.test", 80, get("out.hosts.test")); !strings.Contains(got, "served GET /x host=out.hosts.test") {
		t.Errorf("the control: %q", got)
	}
	for name := range seen(t).Queries {
		if strings.HasSuffix(name, "hosts.test") || strings.HasPrefix(name, "intranet.") {
			t.Errorf("the nameserver was asked for %s", name)
		}
	}
}

// TestA8AtOnce: an address that was just answered can be dialled, by many at once.
func TestA8AtOnce(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"*.tunnel." + world.Attacker}})
	const workers, each = 8, 25
	var all sync.WaitGroup
	var wrong atomic.Int64
	for w := range workers {
		all.Go(func() {
			for i := range each {
				a, _, err := l.lookup(fmt.Sprintf("a%d-%d.tunnel.%s", w, i, world.Attacker))
				if err != nil {
					wrong.Add(1)
					continue
				}
				if c, err := l.dial("tcp", netip.AddrPortFrom(a, 80).String()); err == nil {
					c.Close()
				}
			}
		})
	}
	all.Wait()
	budget := 0
	for _, x := range l.log() {
		if x.Gate == "tcp" && x.Verdict == "deny" && x.Reason == "resolve-budget" {
			budget += int(x.Count())
		}
		if x.Gate == "tcp" && x.Verdict == "deny" && x.Reason != "resolve-budget" {
			t.Errorf("refused: %s", x)
		}
	}
	if wrong.Load() != 0 || budget >= workers*each {
		t.Errorf("%d answers did not come; %d dials were over the budget", wrong.Load(), budget)
	}
}

// TestA32Judges: the tool that is asked, the resolver and the gate say the same.
func TestA32Judges(t *testing.T) {
	allow, deny := []string{"allowed.example.org", "*.wild.example.org", "port.example.org:443", "office.example.org"}, []string{"no.wild.example.org", "x.no.wild.example.org:80"}
	l := newLab(t, manifest{allow: slices.Clone(allow), deny: slices.Clone(deny)})
	for _, name := range []string{"allowed.example.org", "x.allowed.example.org", "wild.example.org", "a.b.wild.example.org", "no.wild.example.org", "x.no.wild.example.org",
		"notwild.example.org", "port.example.org", "office.example.org", "host.docker.internal", "example.org", "ALLOWED.example.org"} {
		a, _, err := l.lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{80, 443} {
			args := []string{"check"}
			for _, r := range allow {
				args = append(args, "--allow", r)
			}
			for _, r := range deny {
				args = append(args, "--deny", r)
			}
			out, err := exec.Command(filepath.Join(os.Getenv(binVar), "sb-policy"), append(args, fmt.Sprintf("%s:%d", name, port))...).Output()
			if len(out) == 0 {
				t.Fatalf("sb-policy says nothing: %v", err)
			}
			checked := strings.HasPrefix(string(out), "allow ")
			dialled := false
			if a.IsValid() {
				c, err := l.dial("tcp", netip.AddrPortFrom(a, uint16(port)).String())
				if dialled = err == nil; dialled {
					c.Close()
				}
			}
			// Where a name leads is more than the rules of names can say.
			if name == "office.example.org" {
				dialled = !dialled && a.IsValid()
			}
			if checked != dialled || checked && !a.IsValid() {
				t.Errorf("%s:%d: sb-policy says %v, the gate %v, sb-dns %v", name, port, checked, dialled, a)
			}
		}
	}
}
