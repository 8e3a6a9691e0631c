package main

import (
	"io"
	"time"
)

// closeHanded ends a connection that sb-broker has ended already: what the kernel
// still holds goes out.
func (c *outerConn) closeHanded() (up, down int64) {
	c.raw.Control(func(fd uintptr) {
		n := countHanded(int(fd), true)
		up, down = n.sent+n.unsent, n.received
	})
	c.conn.SetLinger(-1)
	c.conn.Close()
	return up, down
}

// awaitEnd waits for the server's end, when sb-broker has said ours: what the server
// still sends would be answered with a reset.
func (c *outerConn) awaitEnd() {
	c.conn.SetReadDeadline(time.Now().Add(farewellTime))
	io.Copy(io.Discard, c.conn)
}

// cutHanded ends a connection that sb-broker still has open. A close would not:
// the connection is whole as long as one descriptor of it is open.
func (c *outerConn) cutHanded() (up, down int64) {
	c.raw.Control(func(fd uintptr) {
		takeNoMore(int(fd))
		writeNoMore(int(fd))
		n := countHanded(int(fd), false)
		up, down = n.sent, n.received
		resetNow(int(fd))
	})
	closeNow(c.conn)
	return up, down
}

// handedCount is what the kernel says went over a connection, in bytes of payload.
type handedCount struct {
	sent     int64 // and left, whether or not it was acknowledged
	unsent   int64 // that it will still send
	received int64 // read or not
}
