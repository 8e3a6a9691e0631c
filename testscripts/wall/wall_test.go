package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sb/testscripts/world"
)

// A test of this package is its attack on a fiftieth of the scale; make bench-wall
// runs the whole.
const part = 50

func TestMain(m *testing.M) {
	if os.Getenv(guestVar) != "" {
		for i, a := range os.Args {
			if a == "guest" {
				guest(os.Args[i+1:])
				return
			}
		}
	}
	if os.Getenv(binVar) == "" && os.Geteuid() == 0 {
		root, err := filepath.Abs("../..")
		if err == nil {
			err = exec.Command("make", "-s", "-C", root, "build").Run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "wall: build:", err)
			os.Exit(1)
		}
		os.Setenv(binVar, filepath.Join(root, "bin"))
	}
	done, err := tools()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wall:", err)
		os.Exit(1)
	}
	code := world.Main(m.Run)
	done()
	os.Exit(code)
}

// small runs an attack in its short form.
func small(t *testing.T, name string) {
	for _, a := range attacks {
		if a.name != name {
			continue
		}
		r := &report{}
		if err := a.run(r, a.n/part); err != nil {
			t.Error(err)
		}
		if r.missed > 0 {
			t.Errorf("%d limits are missed", r.missed)
		}
		return
	}
	t.Fatalf("there is no attack %q", name)
}

func TestFlows(t *testing.T)    { small(t, "flows") }
func TestQueries(t *testing.T)  { small(t, "queries") }
func TestSYNs(t *testing.T)     { small(t, "syns") }
func TestRefusals(t *testing.T) { small(t, "refusals") }
func TestHoard(t *testing.T)    { small(t, "hoard") }

// A figure beyond its limit is one that is missed.
func TestReport(t *testing.T) {
	r := &report{}
	r.most("in a test", 2, 2, "")
	r.same("in a test", 2, 2)
	if r.missed != 0 {
		t.Error("a limit that is kept is missed")
	}
	r.most("in a test", 2.5, 2, "")
	r.same("in a test", 1, 2)
	r.fail("in a test")
	if r.missed != 3 {
		t.Errorf("%d limits are missed, not 3", r.missed)
	}
}
