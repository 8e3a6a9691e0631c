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
	for name, value := range map[string]string{
		"net/unix/max_dgram_qlen":         "512",        // as systemd sets it on a host; a new network namespace begins with 10
		"net/ipv4/tcp_congestion_control": "reno",       // bbr, a host's perhaps, sets a timer for each segment; this one any namespace may choose
		"net/ipv4/tcp_tw_reuse":           "1",          // a gateway that ends its connections in order, thousands a second,
		"net/ipv4/ip_local_port_range":    "1024 65535", // is soon out of ports else
	} {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return nil, err
		}
	}
	b.server, err = startProcess(0, true, nil, "nsenter", "--target", fmt.Sprint(pid), "--net", b.self, "server", world.CDN)
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

// each runs f with every gateway in turn, for so many rounds.
func (b *bench_) each(rounds int, f func(g gateway, r *running) error) error {
	for range rounds {
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

// spent is the CPU time so far, in seconds, of the gateway and of what measures it:
// the pump, the server and the clients that have ended.
func (b *bench_) spent(r *running) (gateway, rest float64) {
	var ended syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &ended)
	clients := time.Duration(ended.Utime.Nano() + ended.Stime.Nano())
	return cpuOf(r.process), cpuOf(r.guest) + cpuOf(b.server) + clients.Seconds()
}

// throughput: one TCP stream each way, of HTTP, which the gate reads.
func (b *bench_) throughput() error {
	return b.each(*rounds, func(g gateway, r *running) error {
		for _, way := range []string{"up", "down"} {
			gateway, rest := b.spent(r)
			got, err := b.client(g, r, way, fmt.Sprint(*seconds))
			if err != nil {
				return err
			}
			b.note(g, way, got["rate"])
			gatewayAfter, restAfter := b.spent(r)
			b.note(g, way+" cpu", (gatewayAfter-gateway)/(got["bytes"]/1e9))
			b.note(g, way+" rest", (restAfter-rest)/(got["bytes"]/1e9))
		}
		return nil
	})
}

// latency: connects, requests on a kept connection, connections a second.
func (b *bench_) latency() error {
	return b.each(*rounds, func(g gateway, r *running) error {
		got, err := b.client(g, r, "latency")
		if err != nil {
			return err
		}
		b.note(g, "connect", got["connect"])
		b.note(g, "http", got["http"])
		gateway, rest := b.spent(r)
		if got, err = b.client(g, r, "connections"); err != nil {
			return err
		}
		b.note(g, "cps", got["cps"])
		gatewayAfter, restAfter := b.spent(r)
		b.note(g, "conn cpu", (gatewayAfter-gateway)*1e6/got["conns"])
		b.note(g, "conn rest", (restAfter-rest)*1e6/got["conns"])
		return nil
	})
}

// memory: what the gateway holds before its guest does anything, and with many
// connections open that wait. Once: it hardly differs.
func (b *bench_) memory() error {
	return b.each(1, func(g gateway, r *running) error {
		idle := r.resident()
		b.note(g, "idle", idle)
		args := []string{"--target", fmt.Sprint(r.guest.Process.Pid), "--net", b.self, "client", "hold", b.host(g), g.gw, fmt.Sprint(*flows)}
		input, keep, err := os.Pipe()
		if err != nil {
			return err
		}
		defer keep.Close()
		cmd, err := startProcessOn(input, 0, true, nil, "nsenter", args...)
		input.Close()
		if err != nil {
			return err
		}
		b.note(g, "held", r.resident())
		b.note(g, "each", (r.resident()-idle)*1024/float64(*flows))
		keep.Close()
		return cmd.Wait()
	})
}

// host is what the guest connects to: behind the gate a name, which it looks up
// first, as guests do.
func (b *bench_) host(g gateway) string {
	if g.name == "sb-gate" {
		return "fast.example.org"
	}
	return world.CDN
}

// client measures something in the guest.
func (b *bench_) client(g gateway, r *running, args ...string) (got map[string]float64, err error) {
	args = append([]string{b.self, "client", args[0], b.host(g), g.gw}, args[1:]...)
	out, err := r.in(args...)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return got, nil
}
