package handover

import (
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sb/lib/audit"
	"sb/lib/fd"
	"sb/lib/reason"
)

func wires(t *testing.T) (gate, broker *Wire) {
	t.Helper()
	near, far, err := fd.Pair("broker", fd.Dgram)
	if err != nil {
		t.Fatal(err)
	}
	if gate, err = New(near); err != nil {
		t.Fatal(err)
	}
	if broker, err = New(far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close(); broker.Close() })
	return gate, broker
}

// TestRecords: what one side says the other reads, and a descriptor is the same file.
func TestRecords(t *testing.T) {
	gate, broker := wires(t)
	r1, w1, _ := os.Pipe()
	r2, w2, _ := os.Pipe()
	at := netip.MustParseAddrPort("[2001:db8::1]:443")
	if err := gate.Hand(1<<63, "a.example", at, int(w1.Fd()), int(w2.Fd())); err != nil {
		t.Fatal(err)
	}
	w1.Close()
	w2.Close()
	rec, err := broker.Next()
	c, ok := rec.(Conn)
	if err != nil || !ok || c.ID != 1<<63 || c.Name != "a.example" || c.At != at {
		t.Fatalf("%+v, %v", rec, err)
	}
	io.WriteString(c.Guest, "one")
	io.WriteString(c.Upstream, "two")
	c.Guest.Close()
	c.Upstream.Close()
	one, _ := io.ReadAll(r1)
	two, _ := io.ReadAll(r2)
	if string(one) != "one" || string(two) != "two" {
		t.Errorf("%q %q", one, two)
	}
	for _, want := range []any{
		Say{ID: 3, Verdict: audit.Note, Reason: reason.SecretEcho},
		Say{ID: 3, Verdict: audit.Deny, Reason: reason.HTTPMethod, What: "a b\nc\x00"},
		End{ID: 3, Reason: reason.Done},
	} {
		var err error
		switch rec := want.(type) {
		case Say:
			err = broker.Say(rec)
		case End:
			err = broker.End(rec)
		}
		if got, nerr := gate.Next(); err != nil || nerr != nil || got != want {
			t.Errorf("%+v, %v, %v, want %+v", got, err, nerr, want)
		}
	}
}

// TestBadRecords: what is no record is an error, and its descriptors do not stay.
func TestBadRecords(t *testing.T) {
	for _, text := range []string{"", "conn", "conn 1 a.example 192.0.2.1:443", "conn x a 192.0.2.1:443", "conn 1 a 192.0.2.1", "say 1 note secret-echo", "say 1 allow secret-echo -", "say 1 note no-such-code -", "say 1 note secret-echo a\nb", "end 1", "end 1 x", "end -1 done", strings.Repeat("x", 3000)} {
		gate, broker := wires(t)
		if _, err := gate.c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if rec, err := broker.Next(); err == nil {
			t.Errorf("%.40q is %+v", text, rec)
		}
	}
	gate, broker := wires(t)
	r, w, _ := os.Pipe()
	if err := gate.Hand(1, "a b", netip.AddrPort{}, int(w.Fd()), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if rec, err := broker.Next(); err == nil {
		t.Errorf("it is %+v", rec)
	}
	if b, err := io.ReadAll(r); err != nil || len(b) > 0 { // ends when nobody has it open
		t.Errorf("%q %v", b, err)
	}
}

// TestLongSay: what is too long for a record is cut, and said all the same.
func TestLongSay(t *testing.T) {
	gate, broker := wires(t)
	if err := broker.Say(Say{ID: 3, Verdict: audit.Deny, Reason: reason.HostMisdirected, What: strings.Repeat("\n", 64<<10)}); err != nil {
		t.Fatal(err)
	}
	rec, err := gate.Next()
	if got, ok := rec.(Say); err != nil || !ok || got.What != strings.Repeat("\n", maxWhat) {
		t.Errorf("%v, %v", rec, err)
	}
}
