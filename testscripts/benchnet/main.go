// Benchnet compares the gate with gvproxy and passt, as networks of the same
// guest: a Linux namespace behind the same pump (sb/testscripts/tapwire), the same
// servers in another namespace, interleaved rounds. It needs root, gvproxy (built
// from the module proxy) and passt (Debian's package).
//
//	benchnet [-rounds N] [-seconds S] [-flows N] [throughput|latency|memory]…
//
// It prints the table with the wire and the MTU of each row, and exits 1 if a
// figure misses its limit. Inspection and the audit log are on.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"sb/testscripts/world"
)

var (
	rounds  = flag.Int("rounds", 5, "rounds, interleaved; medians are compared")
	only    = flag.String("only", "", "one `gateway`'s rows alone")
	flows   = flag.Int("flows", 4000, "connections that are held to measure memory")
	seconds = flag.Float64("seconds", 1.5, "of each throughput measurement")
)

// Where things are, for the copies of this program in the world.
const (
	binVar   = "SB_BIN"
	toolsVar = "SB_BENCH_TOOLS"
)

func main() {
	flag.Parse()
	switch flag.Arg(0) {
	case "client":
		end(client(flag.Args()[1:]))
		return
	case "server":
		end(serve(flag.Arg(1)))
		return
	}
	made := ""
	if os.Getenv(toolsVar) == "" {
		var err error
		made, err = build()
		end(err)
	}
	code := world.Main(func() int {
		if err := bench(flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "benchnet:", err)
			return 1
		}
		return 0
	})
	if made != "" {
		os.RemoveAll(made)
	}
	os.Exit(code)
}

// end ends the program if something went wrong.
func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchnet:", err)
		os.Exit(1)
	}
}

// build makes the pump and the peer, where the module proxy can be reached.
func build() (string, error) {
	dir, err := os.MkdirTemp("", "sb-benchnet-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "tapwire"), "./testscripts/tapwire")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tapwire: %w\n%s", err, out)
	}
	cmd = exec.Command("go", "install", "github.com/containers/gvisor-tap-vsock/cmd/gvproxy@v0.8.9")
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gvproxy: %w\n%s", err, out)
	}
	return dir, os.Setenv(toolsVar, dir)
}

func bench(parts []string) error {
	if len(parts) == 0 {
		parts = []string{"throughput", "latency", "memory"}
	}
	if os.Getenv(binVar) == "" {
		return fmt.Errorf("%s does not say where sb-gate and sb-dns are (make bench-net sets it)", binVar)
	}
	if _, err := exec.LookPath("passt"); err != nil {
		return fmt.Errorf("find the peer: %w (Debian's package passt)", err)
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	defer b.close()
	for _, p := range parts {
		switch p {
		case "throughput":
			err = b.throughput()
		case "latency":
			err = b.latency()
		case "memory":
			err = b.memory()
		default:
			err = fmt.Errorf("there is no %q", p)
		}
		if err != nil {
			return err
		}
	}
	return b.verdict()
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}
