package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// client measures from the guest, and prints JSON.
//
//	client latency HOST NAMESERVER    connect and http: medians in microseconds
//	client connections HOST NAMESERVER
//	                                  cps: connections a second; conns: all of them
//	client hold HOST NAMESERVER N     says how many connections it holds, each
//	                                  after a request, until its input ends
//	client up|down HOST NAMESERVER S  rate: Gbit/s, and bytes, over S seconds
func client(args []string) error {
	what, host, nameserver := args[0], args[1], args[2]
	ip, err := lookup(host, nameserver)
	if err != nil {
		return err
	}
	out := map[string]float64{}
	addr := net.JoinHostPort(ip, "80")
	switch what {
	case "latency":
		out["connect"], out["http"] = connects(addr, 300), requests(addr, host, 1000)
	case "connections":
		const d = 2 * time.Second
		n := rate(addr, host, d)
		out["conns"], out["cps"] = n, n/d.Seconds()
	case "hold":
		n, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return hold(addr, host, n)
	default:
		seconds, err := strconv.ParseFloat(args[3], 64)
		if err != nil {
			return err
		}
		moved, took, err := load(what, net.JoinHostPort(ip, loadPort), host, time.Duration(seconds*float64(time.Second)))
		if err != nil {
			return err
		}
		out["bytes"], out["rate"] = moved, moved*8/took.Seconds()/1e9
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// lookup asks a nameserver for a name; an address is what it is.
func lookup(host, nameserver string) (string, error) {
	if net.ParseIP(host) != nil {
		return host, nil
	}
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, nameserver+":53")
	}}
	ips, err := resolver.LookupHost(context.Background(), host)
	if err != nil {
		return "", err
	}
	return ips[0], nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func connects(addr string, n int) float64 {
	var all []float64
	for range n {
		began := time.Now()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			fail(err)
		}
		all = append(all, micros(time.Since(began)))
		c.Close()
	}
	return median(all)
}

// ask makes one request on a connection that is kept.
func ask(c net.Conn, r *bufio.Reader, host string) error {
	if _, err := fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return err
	}
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		fmt.Sscanf(line, "Content-Length: %d", &length)
		if line == "\r\n" {
			break
		}
	}
	_, err := io.CopyN(io.Discard, r, int64(length))
	return err
}

func requests(addr, host string, n int) float64 {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		fail(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	var all []float64
	for range n {
		began := time.Now()
		if err := ask(c, r, host); err != nil {
			fail(err)
		}
		all = append(all, micros(time.Since(began)))
	}
	return median(all)
}

// rate is how many connections with a request each come about in d, 16 at a time.
func rate(addr, host string, d time.Duration) float64 {
	var n atomic.Int64
	var wait sync.WaitGroup
	end := time.Now().Add(d)
	for range 16 {
		wait.Go(func() {
			for time.Now().Before(end) {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					fail(err)
				}
				if err := ask(c, bufio.NewReader(c), host); err != nil {
					fail(err)
				}
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
				n.Add(1)
			}
		})
	}
	wait.Wait()
	return float64(n.Load())
}

// hold opens n connections, 16 at a time, makes a request on each and keeps them
// until the input ends.
func hold(addr, host string, n int) error {
	var mu sync.Mutex
	var all []net.Conn
	var wait sync.WaitGroup
	for worker := range 16 {
		wait.Go(func() {
			for i := worker; i < n; i += 16 {
				c, err := net.Dial("tcp", addr)
				if err == nil {
					err = ask(c, bufio.NewReader(c), host)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if len(all) < n {
		return fmt.Errorf("%d of %d connections were opened", len(all), n)
	}
	fmt.Println(len(all))
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
