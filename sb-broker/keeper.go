package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"sb/lib/reason"
	"sb/lib/say"
	"sb/sb-broker/scrub"
)

// The bounds of the keeper's answers.
const (
	maxSecret  = 16 << 10
	maxLine    = 4 << 10
	keeperTime = 20 * time.Second
)

// keeper is the wire to the one that has the secrets:
//
//	get NAME           the broker
//	value LEN + bytes  the keeper
//	error CODE TEXT    the keeper
//
// Answers come in the order of the questions.
type keeper struct {
	wire io.ReadWriter

	mu      sync.Mutex
	waiting []chan held // one for each question that has no answer yet
	dead    error
}

// held is an answer.
type held struct {
	value []byte
	why   reason.Code // "" if there is a value
	text  string
}

func newKeeper(wire *os.File) *keeper {
	k := &keeper{wire: wire}
	go k.read()
	return k
}

// get asks for a secret.
func (k *keeper) get(ctx context.Context, name string) held {
	got := make(chan held, 1)
	k.mu.Lock()
	err := k.dead
	if err == nil {
		k.waiting = append(k.waiting, got)
		_, err = fmt.Fprintf(k.wire, "get %s\n", name)
	}
	k.mu.Unlock()
	if err != nil {
		return held{why: reason.SecretUnavailable, text: err.Error()}
	}
	late := time.NewTimer(keeperTime)
	defer late.Stop()
	select {
	case h := <-got:
		return h
	case <-ctx.Done():
		return held{why: reason.SecretUnavailable, text: "the request was given up"}
	case <-late.C:
		return held{why: reason.SecretUnavailable, text: "the keeper does not answer"}
	}
}

// read hands answers out, until the wire ends.
func (k *keeper) read() {
	in := bufio.NewReaderSize(k.wire, maxLine)
	for {
		h, err := readHeld(in)
		k.mu.Lock()
		if err == nil && len(k.waiting) == 0 {
			err = fmt.Errorf("the keeper answers what was not asked")
		}
		if err != nil {
			k.dead = fmt.Errorf("the keeper is gone: %w", err)
			for _, w := range k.waiting {
				w <- held{why: reason.SecretUnavailable, text: k.dead.Error()}
			}
			k.waiting = nil
			k.mu.Unlock()
			return
		}
		next := k.waiting[0]
		k.waiting = k.waiting[1:]
		k.mu.Unlock()
		next <- h
	}
}

// readHeld reads an answer.
func readHeld(in *bufio.Reader) (h held, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	kind, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
	switch kind {
	case "error":
		return held{why: reason.SecretUnavailable, text: rest}, nil
	case "value":
		n, err := strconv.ParseInt(rest, 10, 32)
		if err != nil || n < 0 {
			return h, fmt.Errorf("it says %q", say.Safe(string(line)))
		}
		if n > maxSecret {
			_, err := io.CopyN(io.Discard, in, n)
			return held{why: reason.SecretUnusable, text: "it is too long"}, err
		}
		h.value = make([]byte, n)
		if _, err := io.ReadFull(in, h.value); err != nil {
			return h, err
		}
		if text := unusable(h.value); text != "" {
			clear(h.value)
			return held{why: reason.SecretUnusable, text: text}, nil
		}
		return h, nil
	}
	return h, fmt.Errorf("it says %q", say.Safe(kind))
}

// unusable says why a secret cannot be put into a header, or not be found in what
// a server sends.
func unusable(secret []byte) string {
	switch {
	case len(secret) < scrub.Least:
		return fmt.Sprintf("it has %d bytes, too few to be told from other text", len(secret))
	case bytes.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "it holds a line end or another control character"
	case secret[0] == ' ' || secret[len(secret)-1] == ' ':
		return "it begins or ends with a blank"
	}
	return ""
}
