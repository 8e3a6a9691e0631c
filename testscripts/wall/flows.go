package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"sb/testscripts/world"
)

// flows holds n connections open at a time, half of them to a server that speaks
// first, half of them HTTP between two requests, and asks something of each of
// them, twice.
func flows(r *report, n int) error {
	l, err := newGuestLab("*.example.org", world.Other+":22")
	if err != nil {
		return err
	}
	defer l.close()
	idle, _ := memory(l.gate)
	r.most("resident memory of an idle gate", idle/1024, 16, "MiB")
	cmd := l.inGuest("hold", fmt.Sprint(n))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	defer in.Close()
	var open, alive int
	said := bufio.NewReader(out)
	if _, err := fmt.Fscanf(said, "open %d\n", &open); err != nil {
		return fmt.Errorf("the guest did not open them: %w", err)
	}
	now, _ := memory(l.gate)
	r.same("connections open at a time", float64(open), float64(n))
	r.most("resident memory for each over an idle gate", perFlow(now-idle, n), 60, "KiB")
	fmt.Fprintln(in, "again")
	if _, err := fmt.Fscanf(said, "alive %d\n", &alive); err != nil {
		return fmt.Errorf("the guest did not use them again: %w", err)
	}
	r.same("of them in use again", float64(alive), float64(n))
	now, peak := memory(l.gate)
	r.most("resident memory then, for each", perFlow(now-idle, n), 60, "KiB")
	r.most("the most resident memory", peak/1024, 640, "MiB")
	return nil
}

// perFlow shares out what the gate has grown by. With few flows it is not they but
// the runtime's own buffers and threads that make most of it.
func perFlow(grown float64, n int) float64 {
	const runtimeOwn = 8 << 10 // KiB
	if n < 1000 {
		grown -= runtimeOwn
	}
	return max(0, grown) / float64(n)
}

// held is one connection that the guest keeps.
type held struct {
	c    net.Conn
	name string // asked for over HTTP; "" of a server that echoes
	r    *bufio.Reader
}

// start gives a connection a small buffer, since there are many.
func (h *held) start() { h.r = bufio.NewReaderSize(h.c, 512) }

// holdFlows opens N connections, says how many stand, and on a line of stdin
// uses each again.
func holdFlows(args []string) (map[string]float64, error) {
	n := number(args[0])
	web, err := resolve("hold.example.org")
	if err != nil {
		return nil, err
	}
	all := make([]*held, n)
	each(n, 16, func(i int) {
		addr := world.Other + ":22"
		if i%2 == 0 {
			addr = web + ":80"
		}
		c, err := net.DialTimeout("tcp", addr, 20*time.Second)
		if err != nil {
			fmt.Fprintln(os.Stderr, "dial", i, err)
			return
		}
		h := &held{c: c}
		h.start()
		if i%2 == 0 {
			h.name = "hold.example.org"
		} else {
			if _, err := h.r.ReadString('\n'); err != nil {
				return
			}
		}
		if h.use() {
			all[i] = h
		}
	})
	count := func(good func(*held) bool) (n int64) {
		var mu sync.Mutex
		each(len(all), 16, func(i int) {
			if all[i] != nil && good(all[i]) {
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
		return n
	}
	fmt.Printf("open %d\n", count(func(*held) bool { return true }))
	bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Printf("alive %d\n", count((*held).use))
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
	return nil, nil
}

// use asks something and reads the answer.
func (h *held) use() bool {
	h.c.SetDeadline(time.Now().Add(20 * time.Second))
	if h.name == "" {
		io.WriteString(h.c, "hello\n")
		line, err := h.r.ReadString('\n')
		return err == nil && line == "hello\n"
	}
	fmt.Fprintf(h.c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", h.name)
	res, err := http.ReadResponse(h.r, nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err == nil && res.StatusCode == 200
}

// each calls fn with 0 to n-1, in so many goroutines.
func each(n, workers int, fn func(int)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				fn(i)
			}
		})
	}
	wg.Wait()
}
