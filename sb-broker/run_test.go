package main

import (
	"testing"

	"sb/lib/ctl"
	"sb/lib/fd"
)

// TestControl: the broker says that it lives, and answers nothing else.
func TestControl(t *testing.T) {
	near, far := pair(t, "ctl", fd.Stream)
	c, err := ctl.NewConn(near)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := ctl.NewConn(far)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- control(mine) }()
	for _, q := range []struct{ ask, key string }{{"alive", "ok"}, {"rules", "error"}, {"alive", "ok"}} {
		if err := c.Send(ctl.Message{{Key: "ask", Value: q.ask}}); err != nil {
			t.Fatal(err)
		}
		m, _, err := c.Receive()
		if err != nil || m.Get(q.key) == "" || len(m) != 1 {
			t.Errorf("%s: %v, %v", q.ask, m, err)
		}
	}
	c.Close()
	if err := <-ended; err == nil {
		t.Error("it goes on without its wire")
	}
}
