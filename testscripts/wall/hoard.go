package main

import (
	"fmt"
	"net"
	"sync"
	"time"

	"sb/lib/reason"
)

// hoardSize is how much a page has that the guest asks for and does not read.
const hoardSize = 4 << 20

// hoard opens connections, n of them if it may, over each of which the guest asks
// for a large page that it never reads. Then it closes them and makes an honest
// one.
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
	lines, err := l.log()
	if err != nil {
		return err
	}
	full := 0.0
	for _, line := range lines {
		if line.Reason == reason.MemoryBudget {
			full += float64(line.Count())
		}
	}
	_, peak := memory(l.gate)
	fmt.Printf("  %.0f of %d pages were asked for; at least %.0f connections were refused for their memory\n", got["opened"], n, full)
	r.line("pages that were asked for and not read", got["opened"], float64(min(n, 1000))*0.9, "", "at least", got["opened"] >= float64(min(n, 1000))*0.9)
	if n > 1000 {
		r.most("the most resident memory", peak/1024, 640, "MiB")
	} else {
		r.most("the most resident memory", peak/1024, 256, "MiB")
	}
	r.most("until an honest connection has its page, afterwards", got["honest"], 5000, "ms")
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
	each(number(args[0]), 8, func(int) {
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
	for _, c := range all {
		c.Close()
	}
	began := time.Now()
	for {
		c, err := net.DialTimeout("tcp", web+":80", 20*time.Second)
		if err == nil {
			h := &held{c: c, name: "hoard.example.org"}
			h.start()
			if h.use() {
				break
			}
			c.Close()
		}
		if time.Since(began) > 30*time.Second {
			return nil, fmt.Errorf("an honest connection came to nothing: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return map[string]float64{"opened": float64(len(all)), "honest": float64(time.Since(began).Milliseconds())}, nil
}
