package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sb/testscripts/world"
	"strings"
)

// bench_ is the server of the load and the figures so far.
type bench_ struct {
	self    string
	server  *exec.Cmd
	figures map[string]map[string][]float64 // by gateway and MTU, by what was measured
}

func newBench() (*bench_, error) {
	b := &bench_{figures: map[string]map[string][]float64{}}
	pid, err := world.ServersPID()
	if err != nil {
		return nil, err
	}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	// As systemd sets it on a host; a new network namespace begins with 10.
	if err := os.WriteFile("/proc/sys/net/unix/max_dgram_qlen", []byte("512"), 0); err != nil {
		return nil, err
	}
	b.server, err = startProcess(0, true, nil, "nsenter", "--target", fmt.Sprint(pid), "--net", b.self, "server", world.CDN+":"+loadPort)
	return b, err
}

func (b *bench_) close() {
	b.server.Process.Kill()
	b.server.Wait()
}

func (b *bench_) note(g gateway, what string, v float64) {
	if b.figures[g.key()] == nil {
		b.figures[g.key()] = map[string][]float64{}
	}
	b.figures[g.key()][what] = append(b.figures[g.key()][what], v)
}

func (b *bench_) get(name string, mtu int, what string) float64 {
	return median(b.figures[fmt.Sprintf("%s %d", name, mtu)][what])
}

// each runs f with every gateway in turn, for so many rounds.
func (b *bench_) each(f func(g gateway, r *running) error) error {
	for range *rounds {
		for _, g := range gateways {
			if *only != "" && *only != g.name {
				continue
			}
			dir, err := os.MkdirTemp("", "sb-benchnet-")
			if err != nil {
				return err
			}
			r, err := g.run(b, g, dir)
			if err == nil {
				err = f(g, r)
				r.stop()
			}
			os.RemoveAll(dir)
			if err != nil {
				return fmt.Errorf("%s, MTU %d: %w", g.name, g.mtu, err)
			}
		}
	}
	return nil
}

// in runs a command in the guest.
func (r *running) in(args ...string) ([]byte, error) {
	all := append([]string{"--target", fmt.Sprint(r.guest.Process.Pid), "--net", "timeout", "60"}, args...)
	out, err := exec.Command("nsenter", all...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, exit.Stderr, out)
	}
	return out, err
}

// throughput: one TCP stream each way, of HTTP, which the gate reads.
func (b *bench_) throughput() error {
	return b.each(func(g gateway, r *running) error {
		for _, way := range []string{"up", "down"} {
			before := r.cpu()
			got, err := b.client(g, r, way, fmt.Sprint(*seconds))
			if err != nil {
				return err
			}
			b.note(g, way, got["rate"])
			b.note(g, way+" cpu", (r.cpu()-before)/(got["bytes"]/1e9))
		}
		return nil
	})
}

// latency: connects, requests on a kept connection, connections a second.
func (b *bench_) latency() error {
	return b.each(func(g gateway, r *running) error {
		got, err := b.client(g, r, "latency")
		for what, v := range got {
			b.note(g, what, v)
		}
		return err
	})
}

// client measures something in the guest.
func (b *bench_) client(g gateway, r *running, args ...string) (got map[string]float64, err error) {
	host := world.CDN
	if g.name == "sb-gate" {
		host = "fast.example.org" // its handle: looked up first, as a guest does
	}
	args = append([]string{b.self, "client", args[0], host, g.gw}, args[1:]...)
	out, err := r.in(args...)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return got, nil
}

// verdict prints the table and compares with the limits.
func (b *bench_) verdict() error {
	columns := []string{"up", "down", "up cpu", "down cpu", "connect", "http", "cps"}
	fmt.Printf("%-9s %6s %-9s %9s %9s %11s %11s %11s %9s %8s\n", "gateway", "MTU", "wire", "up Gbit/s", "down", "up cpu s/GB", "down", "connect µs", "http µs", "conn/s")
	for _, g := range gateways {
		fmt.Printf("%-9s %6d %-9s", g.name, g.mtu, g.wire)
		for _, c := range columns {
			fmt.Printf(" %10.2f", median(b.figures[g.key()][c]))
		}
		fmt.Println()
	}
	var missed []string
	check := func(what string, got, limit float64, atLeast bool) {
		ok, word := got >= limit, "at least"
		if !atLeast {
			ok, word = got <= limit, "at most"
		}
		fmt.Printf("  %-66s %6.2f (%s %.2f)\n", what, got, word, limit)
		if !ok {
			missed = append(missed, what)
		}
	}
	ratio := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	if len(b.figures["sb-gate 65520"]["up"]) > 0 {
		for _, way := range []string{"up", "down"} {
			check(way+": the default of Linux against gvproxy's default", ratio(b.get("sb-gate", 65520, way), b.get("gvproxy", 1500, way)), 5, true)
			check(way+": the default of Linux against passt, as fast as it goes", ratio(b.get("sb-gate", 65520, way), max(b.get("passt", 65520, way), b.get("passt", 1500, way))), 0.8, true)
			check(way+": datagrams at MTU 1500 against gvproxy", ratio(b.get("sb-gate", 1500, way), b.get("gvproxy", 1500, way)), 3, true)
			check(way+": CPU a gigabyte, default against default", ratio(b.get("sb-gate", 65520, way+" cpu"), b.get("gvproxy", 1500, way+" cpu")), 0.4, false)
			check(way+": CPU a gigabyte at MTU 1500", ratio(b.get("sb-gate", 1500, way+" cpu"), b.get("gvproxy", 1500, way+" cpu")), 0.4, false)
		}
	}
	if len(b.figures["sb-gate 65520"]["cps"]) > 0 {
		check("connections a second against gvproxy", ratio(b.get("sb-gate", 65520, "cps"), b.get("gvproxy", 1500, "cps")), 1.2, true)
		check("median connect against gvproxy's", ratio(b.get("sb-gate", 65520, "connect"), b.get("gvproxy", 1500, "connect")), 1.5, false)
		check("median request on a kept connection against gvproxy's", ratio(b.get("sb-gate", 65520, "http"), b.get("gvproxy", 1500, "http")), 1.5, false)
	}
	if len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
