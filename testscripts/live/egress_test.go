package live

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"sb/testscripts/world"
)

// TestEgress is the boundary as an everyday sandbox meets it: one host allowed,
// everything else tried beside it.
func TestEgress(t *testing.T) {
	t.Parallel()
	r := run(t, box{flags: []string{"--allow", "allowed.example.org"}, script: `
CURL="curl -sS --max-time 20 --cacert /world/ca.pem"
echo "== allowed http"; $CURL http://allowed.example.org/x
echo "== allowed https"; $CURL https://allowed.example.org/x
echo "== denied name"; $CURL http://denied.example.org/ 2>&1; echo "code $?"
echo "== allowed dns"; probe dns allowed.example.org
echo "== denied dns"; probe dns denied.example.org
echo "== dns over tcp"; probe dnstcp allowed.example.org; probe dnstcp denied.example.org
echo "== literal"; probe tcp ` + world.Never + `:80
echo "== literal of the allowed host"; probe tcp ` + world.CDN + `:443
echo "== ping allowed"; ping -c 1 -W 5 allowed.example.org 2>&1
echo "== ping literal"; ping -c 1 -W 1 ` + world.Never + ` 2>&1
echo "== other resolver"; probe dns allowed.example.org A ` + world.Nameserver + `:53
echo "== other resolver tcp"; probe dnstcp allowed.example.org A ` + world.Nameserver + `:53
echo "== ipv6"; ping -6 -c 1 -W 1 2606:4700::1111 2>&1; curl -g -sS --max-time 3 'http://[2606:4700::1111]/' 2>&1
ip -6 addr show dev eth0
echo "== sni allowed"; probe tls "$(getent hosts allowed.example.org | cut -d' ' -f1):443" allowed.example.org /world/ca.pem
echo "== sni other"; probe tls "$(getent hosts allowed.example.org | cut -d' ' -f1):443" denied.example.org /world/ca.pem
echo "== sni none"; probe tls "$(getent hosts allowed.example.org | cut -d' ' -f1):443" - /world/ca.pem
echo "== sni other port"; probe tls "$(getent hosts allowed.example.org | cut -d' ' -f1):8443" denied.example.org /world/ca.pem
echo "== host other"; $CURL -H 'Host: denied.example.org' http://allowed.example.org/ 2>&1
echo "== http on 443"; $CURL -H 'Host: denied.example.org' http://allowed.example.org:443/ 2>&1
echo "== quic"; probe udp allowed.example.org:443 hello
echo "== udp"; probe udp allowed.example.org:7777 hello
echo "== banner"; probe send allowed.example.org:22 ''
echo "== gateway ports"; for p in 22 80 443 2375 8080; do probe tcp 198.18.0.1:$p; done
echo "== neighbour"; probe tcp 198.18.0.9:80
echo "== end"
`})
	r.ok(t)
	for _, c := range []struct {
		name string
		ids  []string
		f    func(*testing.T)
	}{
		{"an allowed host answers over HTTP and HTTPS", []string{"2"}, func(t *testing.T) {
			r.says(t, "allowed http", `^served GET /x host=allowed\.example\.org sni= `)
			r.says(t, "allowed https", `^served GET /x host=allowed\.example\.org sni=allowed\.example\.org `)
			r.logs(t, `allow tcp allowed\.example\.org 45\.67\.0\.10:80 allow-rule allowed\.example\.org$`)
			r.logs(t, `close tcp allowed\.example\.org 45\.67\.0\.10:443 done - up=\d+ down=\d+ ms=\d+ by=guest`)
		}},
		{"a denied name has no address and is asked nowhere", []string{"1", "52", "51", "84"}, func(t *testing.T) {
			r.says(t, "allowed dns", `^rcode=0 answers=1 198\.18\.1\.0`)
			r.says(t, "denied dns", `^rcode=3 answers=0 ede=15:sb: no-allow-rule`)
			r.says(t, "denied name", `code 6$`)
			r.logs(t, `deny dns denied\.example\.org - no-allow-rule -$`)
			if n := seen(t).Queries["denied.example.org"]; n != 0 {
				t.Errorf("the nameserver was asked for the denied name %d times", n)
			}
			if n := seen(t).Queries["allowed.example.org"]; n == 0 {
				t.Error("the nameserver was never asked for the allowed name: the control did not run")
			}
		}},
		{"an allowed dial names its rule", []string{"85"}, func(t *testing.T) {
			r.logs(t, `allow tcp allowed\.example\.org 45\.67\.0\.10:443 allow-rule allowed\.example\.org$`)
		}},
		{"DNS over TCP is judged alike", []string{"A27"}, func(t *testing.T) {
			r.says(t, "dns over tcp", `(?s)^rcode=0 answers=1 .*rcode=3 answers=0`)
		}},
		{"a hard-coded address is refused at once", []string{"3"}, func(t *testing.T) {
			r.says(t, "literal", `^refused`)
			r.says(t, "allowed http", `^served`)
			r.logs(t, `deny tcp - 45\.67\.0\.30:80 unresolved-address -$`)
			if n := seen(t).Accepts[world.Never+":80"]; n != 0 {
				t.Errorf("the server was reached %d times", n)
			}
		}},
		{"the allowed host's own address, hard-coded, is worth nothing", []string{"A28"}, func(t *testing.T) {
			r.says(t, "literal of the allowed host", `^refused`)
			r.says(t, "allowed https", `^served`)
		}},
		{"ping: the allowed host answers, a literal does not", []string{"5", "6", "7", "8", "9"}, func(t *testing.T) {
			r.says(t, "ping allowed", `1 received`)
			r.says(t, "ping literal", `0 received`)
			r.logs(t, `allow icmp allowed\.example\.org 45\.67\.0\.10 allow-rule `)
			r.logs(t, `deny icmp - 45\.67\.0\.30 unresolved-address -$`)
			r.logsNot(t, `allow icmp \S+ 45\.67\.0\.30`)
		}},
		{"another resolver cannot be reached", []string{"10"}, func(t *testing.T) {
			r.says(t, "other resolver", `^(refused|unreachable|timeout)`)
			r.says(t, "other resolver tcp", `^refused`)
			r.says(t, "allowed dns", `^rcode=0`)
		}},
		{"there is no IPv6", []string{"11"}, func(t *testing.T) {
			r.says(t, "ipv6", `(?s)(unreachable|0 received).*`)
			if strings.Contains(r.section("ipv6"), "inet6 2") {
				t.Error("eth0 has a global IPv6 address")
			}
			r.says(t, "allowed http", `^served`)
		}},
		{"TLS: the allowed name passes, another on the same address does not", []string{"58", "59"}, func(t *testing.T) {
			r.says(t, "sni allowed", `^verified`)
			r.says(t, "sni other", `^(alert|EOF|reset|failed)`)
			r.logs(t, `deny tls denied\.example\.org 45\.67\.0\.10:443 sni-denied -$`)
		}},
		{"TLS without a name is refused", []string{"B3"}, func(t *testing.T) {
			r.says(t, "sni none", `^(alert|EOF|reset|failed)`)
			r.says(t, "sni allowed", `^verified`)
			r.logs(t, `deny tls allowed\.example\.org 45\.67\.0\.10:443 sni-absent -$`)
		}},
		{"TLS is judged on every port", []string{"B14"}, func(t *testing.T) {
			r.says(t, "sni other port", `^(alert|EOF|reset|failed)`)
			r.logs(t, `deny tls denied\.example\.org 45\.67\.0\.10:8443 sni-denied -$`)
			r.says(t, "sni allowed", `^verified`)
		}},
		{"HTTP for another host on the allowed address is refused", []string{"C1", "B15"}, func(t *testing.T) {
			r.says(t, "host other", `sb: refused: host-denied`)
			r.says(t, "http on 443", `sb: refused: host-denied`)
			r.says(t, "allowed http", `^served`)
			r.logs(t, `deny http denied\.example\.org 45\.67\.0\.10:80 host-denied -$`)
			r.logs(t, `close tcp allowed\.example\.org 45\.67\.0\.10:80 host-denied - up=0 down=0 `)
		}},
		{"QUIC is refused at once, UDP without its rule too", []string{"D1", "D2"}, func(t *testing.T) {
			r.says(t, "quic", `^refused`)
			r.says(t, "udp", `^refused`)
			r.logs(t, `deny udp allowed\.example\.org 198\.18\.1\.0:443 quic-refused -$`)
			r.logs(t, `deny udp allowed\.example\.org 198\.18\.1\.0:7777 udp-denied -$`)
		}},
		{"a server that speaks first needs a rule with its port", []string{"C7", "C8"}, func(t *testing.T) {
			r.says(t, "banner", `^(reset|EOF)`)
			r.logs(t, `deny tcp allowed\.example\.org 45\.67\.0\.10:22 server-first -$`)
		}},
		{"the gateway offers DNS and a clock, and there is no neighbour", []string{"D19", "D9"}, func(t *testing.T) {
			for l := range strings.Lines(r.section("gateway ports")) {
				if !strings.HasPrefix(l, "refused") {
					t.Errorf("a port of the gateway: %s", l)
				}
			}
			r.says(t, "neighbour", `^refused`)
			r.says(t, "allowed dns", `^rcode=0`)
		}},
		{"the end of the run names what was refused and the flag for it", []string{"summary"}, func(t *testing.T) {
			for _, want := range []string{"denied.example.org", "--allow denied.example.org", "--allow allowed.example.org:22"} {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("stderr does not say %q:\n%s", want, r.stderr)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) { claim(t, c.ids...); c.f(t) })
	}
}

// TestNoRules is a sandbox without a rule: it reaches nothing, and says so.
func TestNoRules(t *testing.T) {
	t.Parallel()
	claim(t, "1")
	script := `probe dns allowed.example.org; echo "== end"`
	r := run(t, box{script: script})
	r.ok(t)
	if !strings.HasPrefix(r.stdout, "rcode=3 answers=0") {
		t.Errorf("without a rule: %s", r.stdout)
	}
	if !strings.Contains(r.stderr, "this sandbox reaches nothing") {
		t.Errorf("stderr does not say that it reaches nothing:\n%s", r.stderr)
	}
	control := run(t, box{flags: []string{"--allow", "allowed.example.org"}, script: script})
	control.ok(t)
	if !strings.HasPrefix(control.stdout, "rcode=0 answers=1") {
		t.Errorf("control, with the rule: %s", control.stdout)
	}
}

// TestRootWithRouteReplaced: root inside with every capability, who takes the
// network apart, still has the one wire.
func TestRootWithRouteReplaced(t *testing.T) {
	t.Parallel()
	claim(t, "4")
	r := run(t, box{flags: []string{"--allow", "allowed.example.org"}, script: `
echo "== before"; curl -sS --max-time 20 http://allowed.example.org/
grep CapEff /proc/self/status
ip route del default
ip route add default dev eth0
ip neigh add ` + world.Never + ` lladdr 5a:94:ef:e4:0c:01 dev eth0
echo "== on-link"; probe tcp ` + world.Never + `:80
ip route replace default via 198.18.0.1 dev eth0
ip addr add 45.67.0.99/24 dev eth0
ip route add ` + world.Never + ` via 198.18.0.1 src 45.67.0.99
echo "== spoofed"; timeout 5 probe tcp ` + world.Never + `:80 || echo "no answer"
ip addr del 45.67.0.99/24 dev eth0
echo "== after"; curl -sS --max-time 20 http://allowed.example.org/
echo "== end"
`})
	r.ok(t)
	r.says(t, "before", `(?s)^served.*CapEff:\s+0*1ffffffffff`)
	r.says(t, "on-link", `^(refused|timeout|unreachable)`)
	r.says(t, "spoofed", `no answer|refused|timeout|unreachable`)
	r.says(t, "after", `^served`)
	r.logs(t, `deny frame - - frame-source -`)
	if n := seen(t).Accepts[world.Never+":80"]; n != 0 {
		t.Errorf("the server was reached %d times", n)
	}
}

// TestRules is what each form of a rule opens and what it does not.
func TestRules(t *testing.T) {
	t.Parallel()
	r := run(t, box{flags: []string{
		"--allow", "port.example.org:443", "--allow", "ssh.example.org:22", "--allow", "raw.example.org:8080/raw", "--allow", "udp.example.org:7777/udp",
		"--allow", "office.example.org@192.168.0.0/16", "--allow", world.Other + ":80", "--allow", "*.wild.example.org", "--deny", "not.wild.example.org",
		"--allow", "text.example.org", "--allow", "dns:text.example.org", "--allow", "gone.example.org", "--allow", "loopback.example.org", "--allow", "host.example.org",
	}, script: `
CURL="curl -sS --max-time 20 --cacert /world/ca.pem"
echo "== port"; $CURL https://port.example.org/; probe tcp port.example.org:80
echo "== ssh"; probe send ssh.example.org:22 'hello\n'; probe tcp ssh.example.org:443
echo "== raw"; $CURL -H 'Host: anything' http://raw.example.org:8080/; probe tcp raw.example.org:80
echo "== udp"; probe udp udp.example.org:7777 hello; probe tcp udp.example.org:443
echo "== office"; $CURL http://office.example.org/
echo "== office without"; probe tcp loopback.example.org:80; probe tcp host.example.org:80
echo "== address"; $CURL http://` + world.Other + `/; probe tcp ` + world.Other + `:443; probe tcp ` + world.Office + `:80
echo "== wild"; $CURL http://wild.example.org/; $CURL http://a.b.wild.example.org/; probe dns not.wild.example.org; probe dns notwild.example.org
echo "== text"; probe dns text.example.org TXT; probe dns port.example.org TXT
echo "== gone"; probe tcp gone.example.org:443
echo "== https record"; probe dns text.example.org HTTPS; probe dns text.example.org AAAA
echo "== end"
`})
	r.ok(t)
	for _, c := range []struct {
		name string
		ids  []string
		f    func(*testing.T)
	}{
		{"a port narrows", []string{"C7"}, func(t *testing.T) {
			r.says(t, "port", `(?s)^served GET / host=port\.example\.org sni=port.*\nrefused`)
		}},
		{"a port that is no usual one of TLS and HTTP opens any protocol", []string{"C8"}, func(t *testing.T) {
			r.says(t, "ssh", `(?s)^got SSH-2\.0-world.*\nrefused`)
		}},
		{"/raw proves nothing", []string{"B15"}, func(t *testing.T) {
			r.says(t, "raw", `(?s)^served GET / host=anything.*\nrefused`)
		}},
		{"/udp opens datagrams alone", []string{"D2"}, func(t *testing.T) {
			r.says(t, "udp", `(?s)^got hello.*\nrefused`)
		}},
		{"a name into a closed range needs the range", []string{"A1", "A3"}, func(t *testing.T) {
			r.says(t, "office", `^served`)
			r.says(t, "office without", `(?s)^refused.*\nrefused`)
			r.logs(t, `deny tcp loopback\.example\.org 127\.0\.0\.1:80 address-class -$`)
			r.logs(t, `deny tcp host\.example\.org 10\.99\.0\.1:80 address-class -$`)
		}},
		{"an address opens that address alone", []string{"A28"}, func(t *testing.T) {
			r.says(t, "address", `(?s)^served GET / host=45\.67\.0\.20.*\nrefused.*\nrefused`)
		}},
		{"a wildcard covers the apex and any depth, on a label boundary, and a deny beats it", []string{"A12"}, func(t *testing.T) {
			r.says(t, "wild", `(?s)^served.*served.*rcode=3.*rcode=3`)
			r.logs(t, `deny dns not\.wild\.example\.org - deny-rule not\.wild\.example\.org$`)
		}},
		{"TXT only where a rule opts in", []string{"A21"}, func(t *testing.T) {
			r.says(t, "text", `(?s)answers=1 text of text\.example\.org.*\nrcode=0 answers=0`)
		}},
		{"an allowed name that does not exist fails at connect and says so", []string{"no-such-name"}, func(t *testing.T) {
			r.says(t, "gone", `^refused`)
			r.logs(t, `deny tcp gone\.example\.org \S+:443 no-such-name -$`)
		}},
		{"HTTPS records and AAAA are empty", []string{"A22"}, func(t *testing.T) {
			r.says(t, "https record", `(?s)^rcode=0 answers=0.*\nrcode=0 answers=0`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { claim(t, c.ids...); c.f(t) })
	}
}

// TestHostServices: the host's own services are closed, and open one by one.
func TestHostServices(t *testing.T) {
	t.Parallel()
	var onLoopback, onInterface atomic.Int64
	listen := func(addr string, n *atomic.Int64) string {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				n.Add(1)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes")
				c.Close()
			}
		}()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port
	}
	port := listen("127.0.0.1:0", &onLoopback)
	open := listen(world.HostAddr+":0", &onInterface)
	script := fmt.Sprintf(`
echo "== loopback"; curl -sS --max-time 20 http://host.sb.internal:%[1]s/ 2>&1
echo "== docker's name"; curl -sS --max-time 20 http://host.docker.internal:%[1]s/ 2>&1
echo "== other port"; probe tcp host.sb.internal:1
echo "== interface"; curl -sS --max-time 20 http://%[2]s:%[3]s/ 2>&1
echo "== end"
`, port, world.HostAddr, open)
	closed := run(t, box{script: script})
	closed.ok(t)
	refused := onLoopback.Load() + onInterface.Load()
	opened := run(t, box{flags: []string{"--allow", "host.sb.internal:" + port, "--allow", world.HostAddr + ":" + open}, script: script})
	opened.ok(t)
	t.Run("loopback", func(t *testing.T) {
		claim(t, "D20")
		closed.says(t, "loopback", `Could not resolve`)
		opened.says(t, "loopback", `^yes`)
		opened.says(t, "docker's name", `^yes`)
		opened.says(t, "other port", `^refused`)
		if onLoopback.Load() != 2 {
			t.Errorf("accepted %d connections, want the 2 that a rule allows", onLoopback.Load())
		}
	})
	t.Run("interface", func(t *testing.T) {
		claim(t, "A2")
		closed.says(t, "interface", `refused|Failed to connect`)
		opened.says(t, "interface", `^yes`)
		if onInterface.Load() != 1 || refused != 0 {
			t.Errorf("accepted %d connections, want the one that a rule allows; %d while closed", onInterface.Load(), refused)
		}
	})
}
