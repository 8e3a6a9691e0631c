package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
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
	c, err := newCaller(ip, host)
	if err != nil {
		return err
	}
	out := map[string]float64{}
	switch what {
	case "latency":
		connects, err := c.connects(300)
		if err != nil {
			return err
		}
		requests, err := c.requests(1000)
		if err != nil {
			return err
		}
		out["connect"], out["http"] = median(connects), median(requests)
	case "connections":
		n, took, err := c.rate(2 * time.Second)
		if err != nil {
			return err
		}
		out["conns"], out["cps"] = float64(n), float64(n)/took.Seconds()
	case "hold":
		n, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return hold(c, n)
	default:
		seconds, err := strconv.ParseFloat(args[3], 64)
		if err != nil {
			return err
		}
		moved, took, err := c.load(what, time.Duration(seconds*float64(time.Second)))
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

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// hold keeps n connections until the input ends.
func hold(c *caller, n int) error {
	kept, err := c.hold(n)
	if err != nil {
		return fmt.Errorf("%d of %d connections were opened: %w", kept, n, err)
	}
	fmt.Println(kept)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
