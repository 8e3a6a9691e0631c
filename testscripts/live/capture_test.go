package live

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/testscripts/capture"
	"sb/testscripts/listed"
	"sb/testscripts/world"
)

// outside is the device by which everything leaves the host.
const outside = "sb-host"

// hostileScript is what root with every capability does: good and bad, by its own
// kernel and past it. It says how that went.
const hostileScript = `
get() { curl -sS --max-time 30 "$@"; }
echo "== caps"; grep CapEff /proc/self/status
echo "== good"
get -o /dev/null -w '%{size_download}\n' http://allowed.example.org/?size=3000000
head -c 1000000 /dev/zero | get --data-binary @- http://allowed.example.org/up
get --cacert /world/ca.pem -o /dev/null -w '%{size_download}\n' https://allowed.example.org/?size=500000
probe echo ssh.example.org:22 200000
probe udp udp.example.org:7777 text
ping -c 1 -W 5 allowed.example.org | grep -c ttl=
echo "== bad"
get http://denied.example.org/ 2>&1
probe tcp 45.67.0.30:80
probe udp 45.67.0.30:7777 text
probe send allowed.example.org:80 'GET / HTTP/1.1\r\nHost: denied.example.org\r\n\r\n'
probe cut allowed.example.org:80 'GET /?size=50000000 HTTP/1.1\r\nHost: allowed.example.org\r\n\r\n' 100000
probe cut ssh.example.org:22 2000000 50000
timeout -s KILL 1 curl -sS --limit-rate 300k -o /dev/null http://allowed.example.org/?size=20000000
echo "== frames"
handle=$(probe dns allowed.example.org | grep -o '198[0-9.]*' | head -1)
probe frames eth0 $handle 45.67.0.30
echo "== other ways"
ip addr add 10.99.0.77/24 dev eth0
ip route replace default dev eth0
ip route add 45.67.0.30/32 via 198.18.0.1 onlink dev eth0
probe tcp 45.67.0.30:80
probe tcp 10.99.0.2:80
ip link set eth0 address 02:00:00:00:00:09 && probe tcp 45.67.0.10:80
ip link set eth0 address 5a:94:ef:e4:0c:02
ip -6 addr add fd00::2/64 dev eth0; ping -6 -c 1 -W 1 fd00::1
ip addr flush dev eth0; ip addr add 198.18.0.2/30 dev eth0; ip route replace default via 198.18.0.1
echo "== after"
get http://allowed.example.org/after
echo "== end"`

// TestCapture: around a machine whose root sends whatever it likes, raw frames
// too, a capture outside sees what the log lists. Not parallel: nothing else may
// use the device.
func TestCapture(t *testing.T) {
	claim(t, "pcap", "D5", "D6", "D7", "D9", "D11", "D13", "D15")
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+outside+"/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err) // the kernel's own neighbour discovery is not the gate's
	}
	c, err := capture.StartQuiet(outside)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, box{flags: []string{"--allow", "allowed.example.org", "--allow", "ssh.example.org:22", "--allow", "udp.example.org:7777/udp"}, script: hostileScript})
	flows, left, err := c.Settle(30 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	r.ok(t)
	r.says(t, "caps", `CapEff:\s*0*1ffffffffff`)
	r.says(t, "good", `(?s)^3000000\nserved POST /up .*body=1000000\n500000\nechoed 200015 .*\ngot text .*\n1$`)
	r.says(t, "bad", `(?s)resolve.*refused.*refused.*403.*cut after`)
	r.says(t, "frames", `^sent [0-9]{4}, `)
	r.says(t, "after", `^served GET /after`)
	for _, wrong := range append(listed.Compare(flows, r.audit), left...) {
		t.Error(wrong)
	}
	kinds := map[string]int{}
	for _, f := range flows {
		kinds[f.Proto]++
		if f.Remote.Addr().String() == world.Never || f.Proto == "icmp" && f.Up != 56 || f.Local.Addr().String() != world.HostAddr {
			t.Errorf("this left the host: %s", f)
		}
	}
	t.Logf("%d flows outside: %v; %d lines", len(flows), kinds, len(r.audit))
	// What agrees must be found out when one flow more is there, or one line less.
	more := append(slices.Clone(flows), flows[0])
	less := slices.DeleteFunc(slices.Clone(r.audit), func(l audit.Line) bool {
		return strings.Contains(l.String(), "close tcp ssh.example.org") && l.Reason == "done"
	})
	if len(listed.Compare(more, r.audit)) == 0 || len(less) == len(r.audit) || len(listed.Compare(flows, less)) == 0 {
		t.Error("control: a flow too many, or a line too few, is not found")
	}
}
