package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sb/testscripts/world"
)

// bench_ is the servers and the figures so far.
type bench_ struct {
	servers []*exec.Cmd
	figures map[string]map[string][]float64 // by gateway and MTU, by what was measured
}

func newBench() (*bench_, error) {
	b := &bench_{figures: map[string]map[string][]float64{}}
	pid, err := world.ServersPID()
	if err != nil {
		return nil, err
	}
	for _, port := range []string{"5201", "5202"} {
		cmd := exec.Command("nsenter", "--target", fmt.Sprint(pid), "--net", "iperf3", "-s", "-B", world.Other, "-p", port)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("start iperf3: %w", err)
		}
		b.servers = append(b.servers, cmd)
	}
	time.Sleep(300 * time.Millisecond) // iperf3 tells nobody that it listens
	return b, nil
}

func (b *bench_) close() {
	for _, c := range b.servers {
		c.Process.Kill()
		c.Wait()
	}
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

// throughput: one TCP stream each way.
func (b *bench_) throughput() error {
	return b.each(func(g gateway, r *running) error {
		for _, way := range []string{"up", "down"} {
			args := []string{"iperf3", "-c", world.Other, "-p", "5201", "-t", fmt.Sprint(*seconds), "-J"}
			if way == "down" {
				args = append(args, "-R")
			}
			before := r.cpu()
			out, err := r.in(args...)
			if err != nil {
				return err
			}
			cpu := r.cpu() - before
			var result struct {
				End struct {
					Received struct {
						Bytes float64 `json:"bytes"`
						Rate  float64 `json:"bits_per_second"`
					} `json:"sum_received"`
				} `json:"end"`
			}
			if err := json.Unmarshal(out, &result); err != nil {
				return err
			}
			b.note(g, way, result.End.Received.Rate/1e9)
			b.note(g, way+" cpu", cpu/(result.End.Received.Bytes/1e9))
		}
		return nil
	})
}

// latency: connects, requests on a kept connection, connections a second.
func (b *bench_) latency() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return b.each(func(g gateway, r *running) error {
		target := world.CDN + ":80"
		if g.name == "sb-gate" {
			target = "fast.example.org:80" // its handle: looked up first, as a guest does
		}
		out, err := r.in(self, "client", target, g.gw)
		if err != nil {
			return err
		}
		var got map[string]float64
		if err := json.Unmarshal(out, &got); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for what, v := range got {
			b.note(g, what, v)
		}
		return nil
	})
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
