package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// hoardSize is how much a page has that the guest asks for and does not read.
const hoardSize = 4 << 20

// hoard opens n connections over each of which the guest asks for a large page
// that it never reads, and then makes an honest one.
func hoard(r *report, n int) error {
	l, err := newGuestLab("*.example.org")
	if err != nil {
		return err
	}
	defer l.close()
	got, err := l.askGuest("hoard", fmt.Sprint(n))
	if err != nil {
		return err
	}
	fmt.Printf("  %.0f of them opened\n", got["opened"])
	_, peak := memory(l.gate)
	r.most("the most resident memory", peak/1024, 640, "MiB")
	r.most("an honest connection then", got["honest"], 1000, "ms")
	return nil
}

// hoardFlows opens connections, asks, and reads nothing.
func hoardFlows(args []string) (map[string]float64, error) {
	web, err := resolve("hoard.example.org")
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []net.Conn
	each(number(args[0]), 16, func(int) {
		c, err := net.DialTimeout("tcp", web+":80", 20*time.Second)
		if err != nil {
			return
		}
		// A small window, so that it is the gate that holds the page.
		c.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(c, "GET /?size=%d HTTP/1.1\r\nHost: hoard.example.org\r\n\r\n", hoardSize)
		mu.Lock()
		all = append(all, c)
		mu.Unlock()
	})
	began := time.Now()
	other, err := resolve("honest.example.org")
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout("tcp", other+":80", 20*time.Second)
	if err != nil {
		return nil, fmt.Errorf("an honest connection: %w", err)
	}
	h := &held{c: c, name: "honest.example.org"}
	h.start()
	if !h.use() {
		return nil, fmt.Errorf("an honest connection had no answer")
	}
	return map[string]float64{"opened": float64(len(all)), "honest": float64(time.Since(began).Milliseconds())}, nil
}
