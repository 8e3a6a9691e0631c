// Bench measures what a sandbox costs, pairwise in one run where it is a
// comparison: this machine's noise then meets both sides. It exits 1 if a figure
// is over its limit.
//
//	bench [-rounds N] [start|restored|agent|memory|many|loop|rules|broker]…
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	rounds = flag.Int("rounds", 7, "pairs of runs that are compared")
	turns  = flag.Int("turns", 500, "restores in a row")
	idle   = flag.Duration("idle", time.Minute, "how long a sandbox is idle before its memory is counted")
)

// image is that of the shell profile.
const image = "bootstrap:bookworm?include=ca-certificates,curl,git,iproute2,iputils-ping,less,procps"

func main() {
	flag.Parse()
	parts := flag.Args()
	if len(parts) == 0 {
		parts = []string{"rules", "broker", "memory", "many", "start", "restored", "agent", "loop"}
	}
	ok := true
	for _, p := range parts {
		f, known := map[string]func() error{"start": start, "restored": restored, "agent": agent, "memory": memory, "many": many, "loop": loop, "rules": rules, "broker": broker}[p]
		if !known {
			fmt.Fprintf(os.Stderr, "bench: there is no %q\n", p)
			os.Exit(2)
		}
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			ok = false
		}
	}
	if !ok {
		os.Exit(1)
	}
}

// report prints a figure and compares it with its limit.
func report(what string, got float64, unit string, limit float64) error {
	fmt.Printf("%-58s %8.2f %-6s (at most %.2f)\n", what, got, unit, limit)
	if got > limit {
		return fmt.Errorf("%s: %.2f %s is over %.2f", what, got, unit, limit)
	}
	return nil
}

func tool(name string) string { return filepath.Join(os.Getenv("SB_BIN"), name) }

func sbImage(args ...string) (string, error) {
	out, err := exec.Command(tool("sb-image"), args...).Output()
	if err != nil {
		return "", fmt.Errorf("sb-image %s: %w (make run fetches the kernel and the image)", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// start compares the time from the start of sb-run to the first byte of the
// command's output with bare QEMU's: the same kernel, initramfs and disks, no
// gate, no resolver, no confinement.
func start() error {
	b, err := newBare()
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Printf("bare: %s\n", strings.Join(b.argv, " "))
	var ours, bare []time.Duration
	for range *rounds {
		t, err := b.firstByte()
		if err != nil {
			return fmt.Errorf("bare QEMU: %w", err)
		}
		bare = append(bare, t)
		if t, err = firstByte(memoryMB, "--cold"); err != nil {
			return fmt.Errorf("sb-run: %w", err)
		}
		ours = append(ours, t)
	}
	fmt.Printf("sb-run    %v\nbare QEMU %v\n", rounded(ours), rounded(bare))
	return report("a cold start to the first byte, sb-run against bare QEMU (medians)", float64(median(ours))/float64(median(bare)), "times", 1.30)
}

func rounded(all []time.Duration) (out []time.Duration) {
	for _, d := range all {
		out = append(out, d.Round(10*time.Millisecond))
	}
	return out
}

func median(all []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}

// firstByte is the time from the start of sb-run to the first byte of the
// command's output. The machine is emulated, as bare QEMU's is: nothing is probed.
func firstByte(mb string, flags ...string) (time.Duration, error) {
	args := append([]string{image, "--accel", "tcg", "--cpus", cpus, "--memory", mb + "m"}, flags...)
	return firstOf(exec.Command(tool("sb-run"), append(args, "--", "echo", "x")...))
}

// firstOf is the time to the first byte of a command's output.
func firstOf(cmd *exec.Cmd) (time.Duration, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var first [1]byte
	_, err = out.Read(first[:])
	took := time.Since(began)
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	return took, err
}

// sandbox is a running one whose command waits.
type sandbox struct{ cmd *exec.Cmd }

// idling starts a sandbox that does nothing.
func idling(flags ...string) (*sandbox, error) {
	args := append([]string{image, "--accel", "tcg", "--allow", "example.org"}, flags...)
	s := &sandbox{exec.Command(tool("sb-run"), append(args, "--", "sh", "-c", "echo up; sleep 3600")...)}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		s.end()
		return nil, fmt.Errorf("the sandbox did not come up: %w", err)
	}
	return s, nil
}

// end ends it and waits for it.
func (s *sandbox) end() {
	s.cmd.Process.Signal(os.Interrupt)
	s.cmd.Wait()
}

// memory adds up what the processes of one idle sandbox take, QEMU apart: each
// page counted by its share (PSS).
func memory() error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := idling("-w", dir)
	if err != nil {
		return err
	}
	defer s.end()
	time.Sleep(*idle) // what is measured is a sandbox that has been idle so long
	total := 0.0
	for _, p := range family(s.cmd.Process.Pid) {
		if strings.HasPrefix(p.name, "qemu") {
			continue
		}
		kb, err := pss(p.pid)
		if err != nil {
			return err
		}
		fmt.Printf("  %-10s %6.1f MB\n", p.name, kb/1024)
		total += kb / 1024
	}
	return report(fmt.Sprintf("memory of the sb-* processes of a sandbox idle for %v", *idle), total, "MB", 60)
}

// many compares ten idle sandboxes from one template with ten that have booted:
// the proportional set size of all their processes together.
func many() error {
	cold, err := tenIdle("--cold")
	if err != nil {
		return err
	}
	ours, err := tenIdle()
	if err != nil {
		return err
	}
	fmt.Printf("ten idle sandboxes: cold %.0f MB, from one template %.0f MB\n", cold/1024, ours/1024)
	return report("memory of ten idle sandboxes, from memory against cold", ours/cold, "times", 0.35)
}

func tenIdle(flags ...string) (total float64, err error) {
	var all []*sandbox
	defer func() {
		for _, s := range all {
			s.end()
		}
	}()
	for range 10 {
		s, err := idling(append([]string{"--cpus", cpus, "--memory", memoryMB + "m"}, flags...)...)
		if err != nil {
			return 0, err
		}
		all = append(all, s)
	}
	time.Sleep(*idle / 2)
	for _, s := range all {
		for _, p := range family(s.cmd.Process.Pid) {
			kb, err := pss(p.pid)
			if err != nil {
				return 0, err
			}
			total += kb
		}
	}
	return total, nil
}

type process struct {
	pid  int
	name string
}

// family is a process and all that descend from it.
func family(pid int) (all []process) {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return nil
	}
	all = append(all, process{pid, strings.TrimSpace(string(name))})
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range tasks {
		text, _ := os.ReadFile(f)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, family(child)...)
			}
		}
	}
	return all
}

// pss is a process's proportional set size in KiB.
func pss(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("no Pss of process %d", pid)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// rules runs the benchmarks of lib/rule: the best of several rounds, since a
// busy machine only ever makes them slower.
func rules() error {
	out, err := exec.Command("go", "test", "./lib/rule", "-run", "^$", "-bench", ".", "-count", "5", "-benchtime", "100ms").CombinedOutput()
	if err != nil {
		return fmt.Errorf("rules: %w\n%s", err, out)
	}
	best := map[string]map[int]float64{} // by question, by number of rules
	for _, m := range regexp.MustCompile(`(?m)^BenchmarkDecide/(\w+)/rules=(\d+)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`).FindAllStringSubmatch(string(out), -1) {
		n, _ := strconv.Atoi(m[2])
		ns, _ := strconv.ParseFloat(m[3], 64)
		if best[m[1]] == nil {
			best[m[1]] = map[int]float64{}
		}
		if old, ok := best[m[1]][n]; !ok || ns < old {
			best[m[1]][n] = ns
		}
	}
	if len(best) == 0 {
		return fmt.Errorf("rules: no figure in\n%s", out)
	}
	for name, by := range best {
		if by[10] == 0 || by[10000] == 0 {
			continue
		}
		if err := report("a decision ("+strings.ToLower(name)+") with 10,000 rules", by[10000]/1000, "µs", 1); err != nil {
			return err
		}
		if err := report("  against 10 rules", by[10000]/by[10], "times", 1.5); err != nil {
			return err
		}
	}
	return nil
}
