//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/reason"
	"sb/sb-gate/journal"

	"golang.org/x/net/dns/dnsmessage"
)

// TestTotals: what was refused is counted by name, place and reason.
func TestTotals(t *testing.T) {
	s := start(t, "a.example")
	for range 5 {
		s.guest.lookup("denied.example")
	}
	s.secure(443, "a.example", "x.example")
	speaks(s.dial("a.example", 443), client("x.example"))
	s.has("deny tls x.example")
	got := s.ask(ctl.Message{{Key: "ask", Value: "totals"}})
	if got.Get("ok") != "totals" || got.Get("total") != "5 dns denied.example - no-allow-rule" || len(got.All("total")) != 2 ||
		!strings.HasPrefix(got.All("total")[1], "1 tls x.example 45.67.") {
		t.Errorf("%v", got)
	}
}

// TestTotalsOfAnyName: whatever a guest asks for, how often it was refused is
// told, and the gate goes on.
func TestTotalsOfAnyName(t *testing.T) {
	s := start(t, "a.example")
	s.inexact = true
	s.web("a.example", 80)
	for name, want := range map[string]string{
		"plain.example":           "plain.example", // the control
		"evil\n.example":          `evil\x0a.example`,
		"evil\n\nok=x.example":    `evil\x0a\x0aok\x3dx.example`,
		"two words - dns.example": `two\x20words\x20-\x20dns.example`,
		"-":                       `\x2d`,
		"\x00\r\xff.example":      `\x00\x0d\xff.example`,
		strings.Repeat("\n", 63):  strings.Repeat(`\x0a`, 63),
	} {
		c := s.guest.datagrams(netip.AddrPortFrom(s.guest.net.Gateway(), portDNS))
		c.Write(question(1, name, dnsmessage.TypeA))
		s.has("deny dns " + want)
		c.Close()
		if got := s.ask(ctl.Message{{Key: "ask", Value: "totals"}}).All("total"); !hasTotal(got, "dns "+want+" - ") {
			t.Errorf("%q: %q", name, got)
		}
	}
	s.passesHTTP("a.example", 80)
}

func hasTotal(totals []string, part string) bool {
	for _, t := range totals {
		if strings.Contains(t, part) {
			return true
		}
	}
	return false
}

// TestTotalsOfLongHosts: of a Host of 62 KiB as much is kept as a name can have.
func TestTotalsOfLongHosts(t *testing.T) {
	s := start(t, "a.example")
	s.inexact = true
	s.web("a.example", 80)
	const n = 80
	for i := range n {
		host := fmt.Sprintf("%d.", i) + strings.Repeat("x", 62<<10)
		if got := s.says("a.example", 80, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); !strings.Contains(got, "403") {
			t.Fatalf("%.100q", got)
		}
	}
	got := s.ask(ctl.Message{{Key: "ask", Value: "totals"}})
	if got.Get("ok") != "totals" || len(got.All("total")) != n {
		t.Errorf("%d totals, %q", len(got.All("total")), got.Get("error"))
	}
	for _, line := range got.All("total") {
		if len(line) > audit.MaxName+100 {
			t.Errorf("a line of %d bytes: %.100q", len(line), line)
		}
	}
	s.passesHTTP("a.example", 80)
}

// TestTotalsFit: as many totals as are counted apart, of the longest names and
// the worst bytes, fit in one answer.
func TestTotalsFit(t *testing.T) {
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{log: journal.New(null, nil)}
	defer g.log.Close()
	const n = 2000
	for i := range n {
		g.log.Fold(audit.Line{Verdict: audit.Deny, Gate: audit.DNS, Name: fmt.Sprint(i) + strings.Repeat("\n", 1000), Reason: reason.BadName})
	}
	near, far, err := fd.Pair("ctl", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := ctl.NewConn(near)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ctl.NewConn(far)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ended := make(chan error, 1)
	go func() { ended <- g.control(theirs) }()
	ours.Send(ctl.Message{{Key: "ask", Value: "totals"}})
	got, _, err := ours.Receive()
	counted, size := 0, 0
	for _, line := range got.All("total") {
		times := 0
		fmt.Sscan(line, &times)
		counted += times
		size += len(line)
	}
	if err != nil || counted != n || size < 1000*4*250 {
		t.Errorf("%d of %d are counted in %d bytes: %q, %v", counted, n, size, got.Get("error"), err)
	}
	ours.Close()
	if err := <-ended; err != nil {
		t.Errorf("it ended: %v", err)
	}
}
