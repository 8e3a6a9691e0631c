// Wall drives every bound of the built gate and resolver with a guest that means
// harm: a network namespace is the guest, and the wire is in this program's hand
// too, for frames that no kernel would send.
//
//	wall [-n N] [flows|queries|syns|refusals|hoard|frames]…
//
// It prints what it measured beside the limit, and exits 1 if a limit is missed.
// It needs root, and the tools in the directory that SB_BIN names.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"sb/testscripts/world"
)

// Where things are, for the copies of this program in the world.
const (
	binVar   = "SB_BIN"
	toolsVar = "SB_WALL_TOOLS"
)

// attack is one of the bounds under load; n is how much of it.
type attack struct {
	name string
	n    int
	run  func(*report, int) error
}

var attacks = []attack{
	{"flows", 10_000, flows},
	{"queries", 1_000_000, queries},
	{"syns", 1_000_000, syns},
	{"refusals", 1_000_000, refusals},
	{"hoard", 10_000, hoard},
	{"frames", 10_000_000, frames},
}

var size = flag.Int("n", 0, "how much of each, instead of what the limits are for")

func main() {
	flag.Parse()
	if a := flag.Args(); len(a) > 0 && a[0] == "guest" {
		guest(a[1:])
		return
	}
	done, err := tools()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wall:", err)
		os.Exit(1)
	}
	code := world.Main(func() int { return runAll(flag.Args()) })
	done()
	os.Exit(code)
}

// tools builds the pump, outside the world: it has no module proxy.
func tools() (done func(), err error) {
	done = func() {}
	if os.Getenv(toolsVar) != "" || os.Geteuid() != 0 {
		return done, nil
	}
	if os.Getenv(binVar) == "" {
		return done, fmt.Errorf("%s is not set: the directory of the built tools (make bench-wall sets it)", binVar)
	}
	dir, err := os.MkdirTemp("", "sb-wall-")
	if err != nil {
		return done, err
	}
	done = func() { os.RemoveAll(dir) }
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "tapwire"), "sb/testscripts/tapwire")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return done, fmt.Errorf("build tapwire: %w\n%s", err, out)
	}
	return done, os.Setenv(toolsVar, dir)
}

func runAll(names []string) int {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	missed := 0
	for _, a := range attacks {
		if len(names) > 0 && !wanted[a.name] {
			continue
		}
		delete(wanted, a.name)
		if *size > 0 {
			a.n = *size
		}
		r := &report{}
		fmt.Printf("%s, %d\n", a.name, a.n)
		began := time.Now()
		if err := a.run(r, a.n); err != nil {
			r.fail("%v", err)
		}
		fmt.Printf("  %.1f s\n", time.Since(began).Seconds())
		missed += r.missed
	}
	for n := range wanted {
		fmt.Fprintf(os.Stderr, "wall: there is no %q\n", n)
		missed++
	}
	if missed > 0 {
		return 1
	}
	return 0
}

// report is what was measured, and how much of it missed its limit.
type report struct{ missed int }

// most reports a figure that may be no more than limit.
func (r *report) most(what string, got, limit float64, unit string) {
	r.line(what, got, limit, unit, "at most", got <= limit)
}

// same reports a figure that must be exactly limit.
func (r *report) same(what string, got, limit float64) {
	r.line(what, got, limit, "", "exactly", got == limit)
}

func (r *report) line(what string, got, limit float64, unit, how string, good bool) {
	verdict := ""
	if !good {
		verdict = "  MISSED"
		r.missed++
	}
	fmt.Printf("  %-52s %12s %-4s %s %s%s\n", what, figure(got), unit, how, figure(limit), verdict)
}

// figure writes a whole number as one.
func figure(x float64) string {
	if x == float64(int64(x)) {
		return fmt.Sprint(int64(x))
	}
	return fmt.Sprintf("%.1f", x)
}

func (r *report) fail(format string, args ...any) {
	fmt.Printf("  "+format+"  MISSED\n", args...)
	r.missed++
}
