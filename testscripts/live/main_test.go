// Package live boots real machines and attacks their boundary from inside. The
// tests run in a world of their own (sb/testscripts/world), so that every name
// and address is one made for them; only the kernel and the image come from the
// host's package archive, before.
//
// Each case is a subtest that names the ids it covers; a refusal stands beside
// its positive control in the same case. The table of cases and the tally are
// the last lines of the run.
package live

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sb/testscripts/world"
)

// imageRef is the machine that the tests boot.
const imageRef = "bootstrap:bookworm?include=ca-certificates,curl,git,iproute2,iputils-ping,procps,busybox-static,nodejs,sudo"

// Variables by which the first of the test processes tells the others where
// things are.
const (
	binVar  = "SB_BIN"       // the tools
	dataVar = "SB_LIVE_DATA" // XDG_DATA_HOME with the kernel and the image
)

func TestMain(m *testing.M) {
	// Under nohup a hangup is ignored, by what is started here too; with a handler
	// it begins with the default.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	if os.Getenv(dataVar) == "" && os.Geteuid() == 0 {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "live:", err)
			os.Exit(1)
		}
	}
	os.Exit(world.Main(func() int {
		code := m.Run()
		printTable()
		return code
	}))
}

// prepare builds the tools and fetches what the machines are made of. It needs
// the host's own network, which the world does not have.
func prepare() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if os.Getenv(binVar) == "" {
		if out, err := command("make", "-s", "-C", root, "build"); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
		os.Setenv(binVar, filepath.Join(root, "bin"))
	}
	data := filepath.Join(root, ".cache", "live")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	os.Setenv("XDG_DATA_HOME", data)
	for _, args := range [][]string{{"kernel", "install"}, {"show", imageRef}, {"show", clientsRef}} {
		out, err := command(filepath.Join(os.Getenv(binVar), "sb-image"), args...)
		if err != nil && args[0] == "show" {
			out, err = command(filepath.Join(os.Getenv(binVar), "sb-image"), "pull", args[1])
		}
		if err != nil {
			return fmt.Errorf("sb-image %s: %w\n%s", args[0], err, out)
		}
	}
	if err := prepareClients(clientsDir(data)); err != nil {
		return fmt.Errorf("fetch clients: %w", err)
	}
	tools := filepath.Join(data, "tools")
	for _, c := range [][]string{
		{"go", "build", "-trimpath", "-o", filepath.Join(tools, "probe"), "./probe"},
		{"go", "test", "-c", "-trimpath", "-o", filepath.Join(tools, "share.test"), "sb/sb-vm/share"},
		{"cc", "-O", "-o", filepath.Join(tools, "lookup-glibc"), "lookup/lookup.c"},
		{"musl-gcc", "-O", "-static", "-o", filepath.Join(tools, "lookup-musl"), "lookup/lookup.c"},
	} {
		if out, err := command(c[0], c[1:]...); err != nil {
			return fmt.Errorf("build what runs in the guest: %v: %w\n%s", c, err, out)
		}
	}
	os.Setenv(dataVar, data)
	if err := fetchClients(packagesDir()); err != nil {
		os.Setenv(clientsVar, err.Error()) // those who need them say so
	}
	if err := prepareEnvironments(data); err != nil {
		return fmt.Errorf("build the agents' environments: %w", err)
	}
	return nil
}

func command(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// table is the cases that ran, for the end of the run.
var table struct {
	sync.Mutex
	rows                    []row
	passed, failed, skipped int
}

type row struct {
	ids, name, result string
}

// claim enters the running subtest into the table: it covers these ids of the
// list of cases (a number), of the catalogue of bypasses (a letter and a
// number), or a word for a claim of ours.
func claim(t *testing.T, ids ...string) {
	t.Helper()
	t.Cleanup(func() {
		table.Lock()
		defer table.Unlock()
		result := "pass"
		switch {
		case t.Failed():
			result = "FAIL"
			table.failed++
		case t.Skipped():
			result = "SKIP"
			table.skipped++
		default:
			table.passed++
		}
		table.rows = append(table.rows, row{strings.Join(ids, ","), t.Name(), result})
	})
}

func printTable() {
	table.Lock()
	defer table.Unlock()
	sort.Slice(table.rows, func(i, j int) bool { return table.rows[i].name < table.rows[j].name })
	fmt.Println("live cases:")
	for _, r := range table.rows {
		fmt.Printf("  %-4s %-14s %s\n", r.result, r.ids, r.name)
	}
	tally := fmt.Sprintf("%d passed, %d failed, %d skipped\n", table.passed, table.failed, table.skipped)
	if file := os.Getenv("SB_TALLY"); file != "" {
		if f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			f.WriteString(tally)
			f.Close()
		}
	}
	fmt.Print(tally)
}
