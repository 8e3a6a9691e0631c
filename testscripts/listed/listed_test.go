package listed

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/testscripts/capture"
)

var began = time.Date(2026, 8, 26, 6, 21, 0, 0, time.UTC)

func flow(proto, remote string, up, down int64, how string) capture.Flow {
	f := capture.Flow{Proto: proto, Local: netip.MustParseAddrPort("10.0.0.1:1000"), Remote: netip.MustParseAddrPort(remote), Up: up, Down: down, Began: began}
	f.Open, f.FIN, f.RST, f.Stray = how != "", how == "fin", how == "rst", how == "stray"
	return f
}

func log(t *testing.T, text string) (all []audit.Line) {
	t.Helper()
	for l := range strings.Lines(text) {
		line, err := audit.Parse([]byte("2026-08-26T06:21:28.110Z " + l))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

// TestCompare: what agrees and what does not, one thing at a time.
func TestCompare(t *testing.T) {
	const (
		web  = "1.2.3.4:80"
		done = "allow tcp a.example 1.2.3.4:80 allow-rule a.example\nclose tcp a.example 1.2.3.4:80 done - up=10 down=20 ms=1 by=guest\n"
		cut  = "allow tcp a.example 1.2.3.4:80 allow-rule a.example\nclose tcp a.example 1.2.3.4:80 reset - up=10 down=20 ms=1 by=guest\n"
		look = "allow look a.example 9.9.9.9:53 done - up=30 down=60 ms=1 by=sb\n"
		udp  = "allow udp a.example 1.2.3.4:7 allow-rule a.example\nclose udp a.example 1.2.3.4:7 idle-timeout - up=5 down=6 ms=1 by=guest\n"
		ping = "allow icmp a.example 1.2.3.4 allow-rule a.example\nclose icmp a.example 1.2.3.4 done - up=56 down=56 ms=1 by=guest\n"
		died = "note run - - gate-died - by=sb\n"
	)
	for _, c := range []struct {
		name  string
		flows []capture.Flow
		log   string
		want  string // the beginning of each fault, with ";" between
	}{
		{"nothing", nil, "note run - - gate-start -\ndeny tcp - 1.2.3.4:80 unresolved-address -\nallow dns a.example 198.18.1.0 allow-rule a.example\n", ""},
		{"equal", []capture.Flow{flow("tcp", web, 10, 20, "fin")}, done, ""},
		{"equal, for other names too", []capture.Flow{flow("tcp", web, 10, 20, "fin")}, strings.Replace(done, "close", "allow http b.example 1.2.3.4:80 allow-rule b.example\nallow tls c.example 1.2.3.4:80 allow-rule c.example\nclose", 1), ""},
		{"one byte more", []capture.Flow{flow("tcp", web, 11, 20, "fin")}, done, "not in the log;not seen outside"},
		{"one byte less", []capture.Flow{flow("tcp", web, 10, 19, "fin")}, done, "not in the log;not seen outside"},
		{"cut, at most", []capture.Flow{flow("tcp", web, 9, 0, "rst")}, cut, ""},
		{"cut, one byte more", []capture.Flow{flow("tcp", web, 11, 0, "rst")}, cut, "not in the log;not seen outside"},
		{"cut, one byte more came", []capture.Flow{flow("tcp", web, 0, 21, "rst")}, cut, "not in the log;not seen outside"},
		{"unlisted", []capture.Flow{flow("tcp", web, 10, 20, "fin"), flow("tcp", web, 10, 20, "fin")}, done, "not in the log"},
		{"unlisted elsewhere", []capture.Flow{flow("tcp", "1.2.3.4:81", 0, 0, "rst")}, "", "not in the log"},
		{"unlisted attempt", []capture.Flow{flow("tcp", web, 0, 0, "")}, "", "not in the log"},
		{"listed and not there", nil, done, "not seen outside"},
		{"not ended", []capture.Flow{flow("tcp", web, 10, 20, "open")}, done, "not ended"},
		{"from outside", []capture.Flow{flow("tcp", web, 10, 20, "stray")}, done, "not in the log;not ended;not seen outside"},
		{"no close line", []capture.Flow{flow("tcp", web, 10, 20, "fin")}, "allow tcp a.example 1.2.3.4:80 allow-rule a.example\n", "opened and never closed;not in the log"},
		{"no allow line", []capture.Flow{flow("tcp", web, 10, 20, "fin")}, strings.SplitAfter(done, "\n")[1], "closed and never opened;not in the log"},
		{"a dial that was refused later", []capture.Flow{flow("tcp", web, 0, 15, "rst")}, "dial tcp a.example 1.2.3.4:80 sni-denied - by=guest\nclose tcp a.example 1.2.3.4:80 sni-denied - up=0 down=15 ms=1 by=guest\n", ""},
		{"it leaked a byte", []capture.Flow{flow("tcp", web, 1, 15, "rst")}, "dial tcp a.example 1.2.3.4:80 sni-denied - by=guest\nclose tcp a.example 1.2.3.4:80 sni-denied - up=0 down=15 ms=1 by=guest\n", "not in the log;not seen outside"},
		{"a dial in vain", []capture.Flow{flow("tcp", web, 0, 0, "")}, "dial tcp a.example 1.2.3.4:80 connect-refused - by=guest\n", ""},
		{"a dial in vain that was none", []capture.Flow{flow("tcp", web, 0, 0, "rst")}, "dial tcp a.example 1.2.3.4:80 connect-refused - by=guest\n", "not in the log"},
		{"a dial in vain beside one", []capture.Flow{flow("tcp", web, 10, 20, "fin"), flow("tcp", web, 0, 0, "")}, "dial tcp a.example 1.2.3.4:80 connect-timeout - by=guest\n" + done, ""},
		{"a question in vain beside one", []capture.Flow{flow("udp", "9.9.9.9:53", 30, 60, "")}, "allow look a.example 9.9.9.9:53 no-answer - up=30 down=60 ms=1 by=sb\n" + look, ""},
		{"a dial that never left", nil, "dial tcp a.example 1.2.3.4:80 connect-unreachable - by=guest\n", ""},
		{"a question", []capture.Flow{flow("udp", "9.9.9.9:53", 30, 60, "")}, look, ""},
		{"a question over TCP", []capture.Flow{flow("tcp", "9.9.9.9:53", 30, 60, "fin")}, look, ""},
		{"a question, one byte off", []capture.Flow{flow("udp", "9.9.9.9:53", 30, 61, "")}, look, "not in the log;not seen outside"},
		{"a question by another", []capture.Flow{flow("udp", "9.9.9.9:53", 30, 60, ""), flow("udp", "9.9.9.9:53", 30, 60, "")}, look, "not in the log"},
		{"datagrams", []capture.Flow{flow("udp", "1.2.3.4:7", 5, 6, "")}, udp, ""},
		{"a datagram more", []capture.Flow{flow("udp", "1.2.3.4:7", 10, 6, "")}, udp, "not in the log;not seen outside"},
		{"a ping", []capture.Flow{flow("icmp", "1.2.3.4:0", 56, 56, "")}, ping, ""},
		{"the guest's own ping", []capture.Flow{flow("icmp", "1.2.3.4:0", 1400, 1400, "")}, ping, "not in the log;not seen outside"},
		{"the wrong protocol", []capture.Flow{flow("udp", web, 10, 20, "")}, done, "not in the log;not seen outside"},
		{"open when the gate died", []capture.Flow{flow("tcp", web, 7, 8, "rst")}, "allow tcp a.example 1.2.3.4:80 allow-rule a.example\n" + died, ""},
		{"it went on", []capture.Flow{flow("tcp", web, 7, 8, "fin")}, "allow tcp a.example 1.2.3.4:80 allow-rule a.example\n" + died, "not in the log;not seen outside"},
		{"being opened when the gate died", []capture.Flow{flow("tcp", web, 0, 8, "rst")}, died, ""},
		{"being opened when the gate died, before one that is listed", []capture.Flow{flow("tcp", web, 0, 0, "rst"), flow("tcp", web, 10, 20, "fin")}, died + done, ""},
		{"just ended when the gate died", []capture.Flow{flow("tcp", web, 0, 8, "fin")}, "allow tcp a.example 1.2.3.4:80 allow-rule a.example\n" + died, ""},
		{"not listed, with bytes, before the gate died", []capture.Flow{flow("tcp", web, 1, 8, "rst")}, died, "not in the log"},
		{"the smaller one first", []capture.Flow{flow("tcp", web, 0, 0, "rst"), flow("tcp", web, 10, 20, "rst")},
			cut + "allow tcp b.example 1.2.3.4:80 allow-rule b.example\nclose tcp b.example 1.2.3.4:80 reset - up=1 down=2 ms=1 by=guest\n", ""},
	} {
		wrong := Compare(c.flows, log(t, c.log))
		want := strings.Split(c.want, ";")
		if c.want == "" {
			want = nil
		}
		same := len(wrong) == len(want)
		for i := range want {
			same = same && strings.HasPrefix(wrong[i], want[i])
		}
		if !same {
			t.Errorf("%s: %q, want %q", c.name, wrong, want)
		}
	}
}
