package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"

	"golang.org/x/sys/unix"
)

// syns opens n connections to addresses that never answer, as fast as the guest's
// device takes them, while the guest goes on fetching a page over new connections.
func syns(r *report, n int) error {
	l, err := newGuestLab("good.example.org", "45.67.9.0/24:80")
	if err != nil {
		return err
	}
	defer l.close()
	cmd := l.inGuest("get", "good.example.org")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	var first float64
	if _, err := fmt.Fscanf(out, "first %f\n", &first); err != nil {
		return fmt.Errorf("the good connection: %w", err)
	}
	began := time.Now()
	if _, err := l.askGuest("syns", fmt.Sprint(n)); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	in.Close()
	var times, failed int
	var worst float64
	if _, err := fmt.Fscanf(out, "then %d %d %f\n", &times, &failed, &worst); err != nil {
		return fmt.Errorf("the good connection, in the flood: %w", err)
	}
	fmt.Printf("  %.0f SYNs a second, %d good connections meanwhile\n", float64(n)/took, times)
	r.line("good connections meanwhile", float64(times), 1, "", "at least", times >= 1)
	r.same("of them failed", float64(failed), 0)
	limit := 1000.0
	if n < 1_000_000 {
		limit = 5000 // a short flood measures how busy this machine is besides
	}
	r.most("the slowest of them", worst, limit, "ms")
	if err := l.settled(); err != nil {
		return err
	}
	_, peak := memory(l.gate)
	r.most("the most resident memory", peak/1024, 256, "MiB")
	l.endGate()
	lines, err := l.log()
	if err != nil {
		return err
	}
	var refused, dialled float64
	for _, line := range lines {
		switch {
		case line.Gate == audit.TCP && line.Verdict == audit.Deny && line.Reason == reason.DialBudget:
			refused += float64(line.Count())
		case line.Gate == audit.TCP && line.Verdict == audit.Dial:
			dialled++
		}
	}
	r.same("SYNs that the log accounts for", refused+dialled, float64(n))
	return nil
}

// sendSYNs sends N first segments on the device, past the guest's own TCP.
func sendSYNs(args []string) (map[string]float64, error) {
	device, err := net.InterfaceByName("eth0")
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	wire := os.NewFile(uintptr(fd), "device")
	defer wire.Close()
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: device.Index}); err != nil {
		return nil, err
	}
	s := newSender(wire)
	base, err := leftDevice()
	if err != nil {
		return nil, err
	}
	for i := range number(args[0]) {
		if i%ring == 0 && i > 0 {
			if base, err = awaitDevice(base+ring, i/ring%100 == 0); err != nil {
				return nil, err
			}
		}
		// Never the same two ports and addresses again, in so few.
		dst := netip.AddrPortFrom(address("45.67.9.0", i%256), 80)
		if err := s.syn(uint16(1024+i/256%60000), dst); err != nil {
			return nil, err
		}
	}
	return map[string]float64{}, nil
}

// ring is how many frames a network card takes before its driver waits. A TAP
// device takes whatever comes, and drops what it has no room for.
const ring = 256

// awaitDevice waits until so many frames have left the device, of whoever's, and
// returns how many have; or until all have.
func awaitDevice(so int, all bool) (left int, err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		before := left
		if left, err = leftDevice(); err != nil || left >= so && (!all || left == before) {
			return left, err
		}
		time.Sleep(50 * time.Microsecond)
	}
	return left, errors.New("the device stands")
}

// leftDevice is how many frames the pump has taken from the device.
func leftDevice() (int, error) {
	text, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		// name: eight figures of what came, then frames after bytes of what went.
		if f := strings.Fields(line); len(f) > 10 && f[0] == "eth0:" {
			return strconv.Atoi(f[10])
		}
	}
	return 0, errors.New("no device eth0")
}

// getPage fetches a page over a new connection again and again until stdin ends.
func getPage(args []string) (map[string]float64, error) {
	addr, err := resolve(args[0])
	if err != nil {
		return nil, err
	}
	fetch := func() (float64, error) {
		began := time.Now()
		c, err := net.DialTimeout("tcp", addr+":80", 20*time.Second)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		c.SetDeadline(began.Add(20 * time.Second))
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", args[0])
		_, err = io.ReadAll(c)
		return float64(time.Since(began).Microseconds()) / 1000, err
	}
	ms, err := fetch()
	if err != nil {
		return nil, err
	}
	fmt.Printf("first %f\n", ms)
	end := stdinEnds()
	var times, failed int
	var worst float64
	for {
		ms, err := fetch()
		times++
		if worst = max(worst, ms); err != nil {
			failed++
		}
		select {
		case <-end:
			fmt.Printf("then %d %d %f\n", times, failed, worst)
			return nil, nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}
