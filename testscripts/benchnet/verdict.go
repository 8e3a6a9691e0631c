package main

import (
	"fmt"
	"strings"
)

// columns of the table: what was measured, its head, digits after the point.
var columns = []struct {
	what, head string
	digits     int
}{
	{"up", "up Gbit/s", 2},
	{"down", "down", 2},
	{"up cpu", "up cpu s/GB", 2},
	{"down cpu", "down", 2},
	{"connect", "connect µs", 0},
	{"http", "request µs", 0},
	{"cps", "conn/s", 0},
	{"conn cpu", "cpu µs", 0},
	{"up rest", "rest s/GB", 2},
	{"down rest", "down", 2},
	{"conn rest", "rest µs", 0},
	{"idle", "idle MiB", 1},
	{"each", "KiB/flow", 1},
}

// limit is what a figure of the gate must keep.
type limit struct {
	name   string
	what   string
	mtu    int
	peer   string // "": the figure itself is limited, not its ratio to a peer's
	at     int    // the peer's MTU; 0: its best
	least  bool   // at least, not at most
	figure float64
}

// The gate's default on Linux is an MTU of 65520, on macOS 1500; gvproxy's is
// 1500.
var limits = []limit{
	{"up, default against gvproxy's default", "up", 65520, "gvproxy", 1500, true, 5},
	{"down, default against gvproxy's default", "down", 65520, "gvproxy", 1500, true, 5},
	{"up, default against passt's best", "up", 65520, "passt", 0, true, 0.8},
	{"down, default against passt's best", "down", 65520, "passt", 0, true, 0.8},
	{"up, datagrams at MTU 1500 against gvproxy", "up", 1500, "gvproxy", 1500, true, 3},
	{"down, datagrams at MTU 1500 against gvproxy", "down", 1500, "gvproxy", 1500, true, 3},
	{"up, CPU a GB, default against gvproxy's default", "up cpu", 65520, "gvproxy", 1500, false, 0.4},
	{"down, CPU a GB, default against gvproxy's default", "down cpu", 65520, "gvproxy", 1500, false, 0.4},
	{"up, CPU a GB at MTU 1500 against gvproxy", "up cpu", 1500, "gvproxy", 1500, false, 0.4},
	{"down, CPU a GB at MTU 1500 against gvproxy", "down cpu", 1500, "gvproxy", 1500, false, 0.4},
	{"connections a second against gvproxy", "cps", 65520, "gvproxy", 1500, true, 1.2},
	{"connect, median against gvproxy's", "connect", 65520, "gvproxy", 1500, false, 1.5},
	{"request on a kept connection, median against gvproxy's", "http", 65520, "gvproxy", 1500, false, 1.5},
	{"idle, MiB", "idle", 65520, "", 0, false, 16},
	{"a flow that waits, KiB", "each", 65520, "", 0, false, 60},
}

// verdict prints the table and compares with the limits.
func (b *bench_) verdict() error {
	fmt.Printf("%-9s %6s %-9s", "gateway", "MTU", "wire")
	for _, c := range columns {
		fmt.Printf(" %11s", c.head)
	}
	fmt.Println()
	for _, g := range gateways {
		if len(b.figures[g.key()]) == 0 {
			continue
		}
		fmt.Printf("%-9s %6d %-9s", g.name, g.mtu, g.wire)
		for _, c := range columns {
			cell := "-"
			if all := b.figures[g.key()][c.what]; len(all) > 0 {
				cell = fmt.Sprintf("%.*f", c.digits, median(all))
			}
			fmt.Printf(" %11s", cell)
		}
		fmt.Println()
	}
	var missed []string
	for _, l := range limits {
		got, ok := b.figure(l)
		if !ok {
			continue
		}
		word, good := "at most", got <= l.figure
		if l.least {
			word, good = "at least", got >= l.figure
		}
		fmt.Printf("  %-56s %6.2f (%s %g)\n", l.name, got, word, l.figure)
		if !good {
			missed = append(missed, l.name)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// figure is what a limit is about; false if it was not measured. A ratio is the
// median of the rounds' ratios: what else the machine did in a round was there
// for both.
func (b *bench_) figure(l limit) (float64, bool) {
	ours := b.figures[fmt.Sprintf("sb-gate %d", l.mtu)][l.what]
	if l.peer == "" {
		return median(ours), len(ours) > 0
	}
	var ratios []float64
	for i, v := range ours {
		peer := 0.0
		for _, g := range gateways {
			theirs := b.figures[g.key()][l.what]
			if g.name == l.peer && (l.at == 0 || l.at == g.mtu) && i < len(theirs) {
				peer = max(peer, theirs[i])
			}
		}
		if peer > 0 {
			ratios = append(ratios, v/peer)
		}
	}
	return median(ratios), len(ratios) > 0
}
