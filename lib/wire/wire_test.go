package wire

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"sb/lib/reason"
)

var records = []any{
	Query{ID: 7, Message: []byte("\x00\nq 1 2\n")},
	Query{ID: 0},
	Query{ID: 3, Stream: true, Message: []byte("abc")},
	Answer{ID: 7, Allow: true, Reason: reason.AllowRule, Name: "example.com", Type: "a", Rule: "*.example.com", TTL: 60, Handle: netip.MustParseAddr("198.18.1.0"), Message: []byte("abc")},
	Answer{ID: 8, Reason: reason.BadName, Name: "a b\n%-é\x00", Type: "type65"},
	Resolve{ID: 9, Name: "example.com"},
	Resolved{ID: 9, Reason: reason.AllowRule, TTL: 1, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
	Resolved{ID: 9, Reason: reason.NoSuchName},
	Exchange{Name: "example.com", Server: "192.0.2.53:53", Up: 40, Down: 56, Millis: 12, Reason: reason.Done},
	Handle{Name: "example.com", Addr: netip.MustParseAddr("198.18.1.0")},
	Hello{Nonce: "N"},
}

func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	c := NewConn(&b)
	for _, r := range records {
		if err := c.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range records {
		got, err := c.Next()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Next() = %#v, %v; want %#v", got, err, want)
		}
	}
	if _, err := c.Next(); err != io.EOF {
		t.Errorf("after the last: %v, want EOF", err)
	}
}

func TestBadRecords(t *testing.T) {
	for _, text := range []string{
		"", "z 1\n", "q 1\n", "q 1 5000\n", "q -1 0\n", "q 1 9\nabc", "q 1 0 tcp\n", "q 1 0 stream x\n", "q 1 0 0\n", "q 1 4294967296\n",
		"a 1 0 maybe - - - - 0 -\n", "a 1 0 allow - - - - 0 x\n", "r 1 a%\n", "r 1 %zz\n", "s 1 - 0 1.2.3\n",
		"s 1 - 0 " + strings.Repeat("1.2.3.4,", 40) + "1.2.3.4\n", "r 1 " + strings.Repeat("a", 9000) + "\n", "q 1 0",
	} {
		if rec, err := NewConn(bytes.NewBufferString(text)).Next(); err == nil {
			t.Errorf("%.40q gave %#v", text, rec)
		}
	}
	if err := NewConn(&bytes.Buffer{}).Send(Query{Message: make([]byte, MaxMessage+1)}); err == nil {
		t.Error("a message over the bound was sent")
	}
}

// A side that takes the place of one that died reads past what that one left
// half-read, and learns the handles that stand.
func TestGreetAfterDeath(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	handles := []Handle{{"a.example", netip.MustParseAddr("198.18.1.0")}, {"b.example", netip.MustParseAddr("198.18.1.1")}}
	go func() {
		other := NewConn(far)
		// The tail of a record for the predecessor, with a forged table in it.
		far.Write([]byte("half a message\ntable FORGED 1\nh evil.example 198.18.1.2\n" + strings.Repeat("x", 9000)))
		for {
			rec, err := other.Next()
			if err != nil {
				return
			}
			if h, ok := rec.(Hello); ok {
				other.SendTable(h.Nonce, handles)
				other.Send(Resolve{ID: 1, Name: "after"})
			}
		}
	}()
	c := NewConn(duplex(near))
	var got []Handle
	if err := c.Greet(func() []Handle { return nil }, func(h Handle) error { got = append(got, h); return nil }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, handles) {
		t.Errorf("handles %v, want %v", got, handles)
	}
	if rec, err := c.Next(); err != nil || rec != (Resolve{ID: 1, Name: "after"}) {
		t.Errorf("the next record: %#v, %v", rec, err)
	}
}

// Both sides may start at the same time.
func TestGreetTogether(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	none := func() []Handle { return nil }
	enter := func(Handle) error { return nil }
	done := make(chan error, 1)
	go func() { done <- NewConn(duplex(far)).Greet(none, enter) }()
	if err := NewConn(duplex(near)).Greet(none, enter); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// duplex lets a write return before the far side reads, as a socket does.
func duplex(c net.Conn) io.ReadWriter {
	w := make(chan []byte, 16)
	go func() {
		for b := range w {
			c.Write(b)
		}
	}()
	return struct {
		io.Reader
		io.Writer
	}{c, writerFunc(func(b []byte) (int, error) { w <- bytes.Clone(b); return len(b), nil })}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Whatever the bytes, Next ends with a record that encodes to what it was read
// from, or with an error.
func FuzzNext(f *testing.F) {
	for _, r := range records {
		b, _ := encode(r)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rec, err := NewConn(bytes.NewBuffer(in)).Next()
		if err != nil {
			return
		}
		if _, ok := rec.(Table); ok {
			return
		}
		b, err := encode(rec)
		if err != nil {
			t.Fatalf("%#v does not encode: %v", rec, err)
		}
		again, err := NewConn(bytes.NewBuffer(b)).Next()
		if err != nil || !reflect.DeepEqual(again, rec) {
			t.Errorf("%#v came back as %#v, %v", rec, again, err)
		}
	})
}
