package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/fd"
)

// However many requests ask at a time, and however long the value is: each has its
// answer, and the keeper one question for a name at a time.
func TestE22ManyAsk(t *testing.T) {
	near, far := pair(t, "secrets", fd.Stream)
	defer near.Close()
	value := strings.Repeat("v", maxSecret)
	begin := make(chan struct{})
	go func() {
		in := bufio.NewReaderSize(near, 128)
		for {
			if _, err := in.ReadSlice('\n'); err != nil {
				return
			}
			<-begin
			if _, err := fmt.Fprintf(near, "value %d\n%s", len(value), value); err != nil {
				return
			}
		}
	}()
	k := newKeeper(far)
	var all sync.WaitGroup
	got := make(chan held, 2000)
	for range cap(got) {
		all.Go(func() { got <- k.get(context.Background(), "anthropic") })
	}
	time.AfterFunc(500*time.Millisecond, func() { close(begin) })
	late := time.After(15 * time.Second)
	for range cap(got) {
		select {
		case h := <-got:
			if h.why != "" || string(h.value) != value {
				t.Fatalf("%q, %d bytes", h.text, len(h.value))
			}
			clear(h.value) // each has its own
		case <-late:
			t.Fatal("some have no answer")
		}
	}
	all.Wait()
}

// TestE22GivenUp: who does not wait any more is forgotten, and the question is not asked
// again while it has no answer, which whoever asks next gets.
func TestE22GivenUp(t *testing.T) {
	near, far := pair(t, "secrets", fd.Stream)
	defer near.Close()
	k := newKeeper(far)
	for range 1000 {
		ctx, giveUp := context.WithTimeout(context.Background(), time.Millisecond)
		if h := k.get(ctx, "anthropic"); h.why == "" {
			t.Fatalf("there is a value: %q", h.value)
		}
		giveUp()
	}
	k.mu.Lock()
	waiting, asked := len(k.waiting["anthropic"]), len(k.asked)
	k.mu.Unlock()
	if waiting != 0 || asked != 1 {
		t.Fatalf("%d are waited for, %d were asked", waiting, asked)
	}
	got := make(chan held, 1)
	go func() { got <- k.get(context.Background(), "anthropic") }()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		waits = len(k.waiting["anthropic"]) == 1
		k.mu.Unlock()
	}
	fmt.Fprintf(near, "value 9\nthe-value")
	if h := <-got; string(h.value) != "the-value" {
		t.Errorf("%q, %s", h.value, h.text)
	}
}
