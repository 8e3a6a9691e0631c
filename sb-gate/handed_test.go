//go:build linux

package main

import (
	"io"
	"os"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/lib/rule"
)

// TestBrokerKilled: with the broker its flows end, by resets on both sides, and the
// log says why. No flow passes until there is another one on the same wire.
func TestBrokerKilled(t *testing.T) {
	s := startBroker(t, "api.example", "bind=api.example")
	s.inexact = true
	w, got := s.api("api.example")
	got.hold, got.held, got.cut = make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := s.client(s.trust, "http/1.1")
	failed := make(chan error, 1)
	go func() {
		_, _, err := keyed(c, "https://api.example/hold", fakeKey, nil)
		failed <- err
	}()
	<-got.held
	s.program.Process.Kill()
	if err := <-failed; err == nil {
		t.Error("the request that was being answered has a whole answer")
	}
	select {
	case <-got.cut:
	case <-time.After(10 * time.Second):
		t.Error("the server's side goes on")
	}
	s.has("deny broker api.example " + w.at.String() + " broker-died -")
	s.has("close tcp api.example " + w.at.String() + " broker-died -")
	s.program.Wait()
	again := make(chan error, 1)
	visits := w.visits()
	go func() {
		_, _, err := keyed(c, "https://api.example/", fakeKey, nil)
		again <- err
	}()
	within(t, 10*time.Second, "the next flow is dialled", func() bool { return w.visits() > visits })
	path, _ := brokerProgram()
	old := s.trust
	s.run(t, path, []string{"bind=api.example"})
	if err := <-again; err == nil {
		t.Error("the guest took a certificate of another authority")
	}
	if old.Equal(s.trust) {
		t.Error("the authority is the same")
	}
	if text, _, err := keyed(s.client(s.trust, "http/1.1"), "https://api.example/", fakeKey, nil); err != nil || text != "key="+fakeKey+" body=0\n" {
		t.Errorf("after it was started again: %q %v", text, err)
	}
}

// TestHandedBudget: the connections that sb-broker holds are bounded.
func TestHandedBudget(t *testing.T) {
	s := startBroker(t, "api.example", "bind=api.example")
	b := &broker{flows: map[uint64]*handed{}}
	for i := range uint64(maxHanded) {
		b.flows[i] = nil
	}
	if h, _, why := b.hand(&flow{}, ruleName(t, "api.example")); h != nil || why != reason.FlowBudget {
		t.Errorf("%v, %s", h, why)
	}
	s.api("api.example")
	c := s.client(s.trust, "http/1.1")
	if _, _, err := keyed(c, "https://api.example/", fakeKey, nil); err != nil {
		t.Error(err)
	}
	c.CloseIdleConnections()
	s.has("close tcp api.example * done -")
}

func ruleName(t *testing.T, s string) rule.Name {
	t.Helper()
	n, err := rule.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestHandedEnding: a connection ends as sb-broker says; one of which it says nothing,
// or too late, ended with it.
func TestHandedEnding(t *testing.T) {
	h := &handed{end: make(chan reason.Code, 1)}
	h.end <- reason.Done
	if why := h.ending(io.EOF); why != reason.Done {
		t.Errorf("it ended with %s", why)
	}
	if why := h.ending(io.EOF); why != reason.BrokerDied {
		t.Errorf("without a word: %s", why)
	}
	h.end <- reason.Done
	if why := h.ending(os.ErrDeadlineExceeded); why != reason.BrokerDied {
		t.Errorf("too late: %s", why)
	}
}
