package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
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
// Answers come in the order of the questions. There is one question at a time about
// a name, however many requests wait for its answer: the wire is never full, so
// that neither side can wait for the other to read.
type keeper struct {
	wire io.ReadWriter

	mu      sync.Mutex
	asked   []string               // what has no answer yet
	waiting map[string][]chan held // who waits for that
	dead    error
}

// held is an answer.
type held struct {
	value []byte
	why   reason.Code // "" if there is a value
	text  string
}

func newKeeper(wire *os.File) *keeper {
	k := &keeper{wire: wire, waiting: map[string][]chan held{}}
	go k.read()
	return k
}

// get asks for a secret. The value is the caller's.
func (k *keeper) get(ctx context.Context, name string) held {
	got := make(chan held, 1)
	err := k.ask(name, got)
	if err != nil {
		return held{why: reason.SecretUnavailable, text: err.Error()}
	}
	late := time.NewTimer(keeperTime)
	defer late.Stop()
	select {
	case h := <-got:
		return h
	case <-ctx.Done():
		k.giveUp(name, got)
		return held{why: reason.SecretUnavailable, text: "the request was given up"}
	case <-late.C:
		k.giveUp(name, got)
		return held{why: reason.SecretUnavailable, text: "the keeper does not answer"}
	}
}

// ask has the answer about a name sent to got.
func (k *keeper) ask(name string, got chan held) (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead != nil {
		return k.dead
	}
	k.waiting[name] = append(k.waiting[name], got)
	if !slices.Contains(k.asked, name) {
		k.asked = append(k.asked, name)
		_, err = fmt.Fprintf(k.wire, "get %s\n", name)
	}
	return err
}

// giveUp forgets one who waits: a guest may give requests up without end.
func (k *keeper) giveUp(name string, got chan held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if all := slices.DeleteFunc(k.waiting[name], func(c chan held) bool { return c == got }); len(all) > 0 {
		k.waiting[name] = all
	} else {
		delete(k.waiting, name)
	}
}

// read hands answers out, until the wire ends.
func (k *keeper) read() {
	in := bufio.NewReaderSize(k.wire, maxLine)
	for {
		h, err := readHeld(in)
		if !k.handOut(h, err) {
			return
		}
	}
}

// handOut gives an answer to those who wait for it, or, for an error, one to all.
func (k *keeper) handOut(h held, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && len(k.asked) == 0 {
		err = fmt.Errorf("the keeper answers what was not asked")
	}
	if err != nil {
		k.dead = fmt.Errorf("the keeper is gone: %w", err)
		for _, waiting := range k.waiting {
			for _, w := range waiting {
				w <- held{why: reason.SecretUnavailable, text: k.dead.Error()}
			}
		}
		k.asked, k.waiting = nil, nil
		return false
	}
	for _, w := range k.waiting[k.asked[0]] {
		w <- held{bytes.Clone(h.value), h.why, h.text}
	}
	clear(h.value)
	delete(k.waiting, k.asked[0])
	k.asked = k.asked[1:]
	return true
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
		_, text, _ := strings.Cut(rest, " ") // behind the code, which is a word for programs
		return held{why: reason.SecretUnavailable, text: text}, nil
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
