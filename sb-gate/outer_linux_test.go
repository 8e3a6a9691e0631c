package main

import (
	"net"
	"testing"
	"time"
)

// TestTakeNoMore: what a server sends from then on does not arrive, whether or not
// something waits to go out to it, and over both families; before it does.
func TestTakeNoMore(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, unsent := range []int{0, 32 << 20} {
			l, err := net.Listen("tcp", at)
			if err != nil {
				t.Logf("%s: %v", at, err)
				continue
			}
			defer l.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			out, err := newOuterConn(c.(*net.TCPConn))
			if err != nil {
				t.Fatal(err)
			}
			if unsent > 0 {
				c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				c.Write(make([]byte, unsent)) // nobody reads it
			}
			unread := func(within time.Duration) (n int) {
				for end := time.Now().Add(within); n == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
					out.raw.Control(func(fd uintptr) { n = unreadBytes(int(fd)) })
				}
				return n
			}
			server.Write([]byte("before"))
			if n := unread(5 * time.Second); n != 6 {
				t.Fatalf("%s: control: %d bytes came", at, n)
			}
			out.raw.Control(func(fd uintptr) {
				if n := unsentBytes(int(fd)); (n > 0) != (unsent > 0) {
					t.Errorf("%s: control: %d bytes wait to go out", at, n)
				}
				takeNoMore(int(fd))
			})
			server.Write([]byte("behind"))
			time.Sleep(100 * time.Millisecond) // for what must not come
			if n := unread(time.Millisecond); n != 6 {
				t.Errorf("%s, %d to go out: %d bytes are there, of 6", at, unsent, n)
			}
		}
	}
}
