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
