package main

import (
	"os"
	"path/filepath"
	"testing"

	"sb/lib/fd"
	"sb/lib/say"
)

// The test binary is sb-run and its tools too, by the name it is called by:
// whole runs are tested with tools that stand in for the real ones.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); name {
	case "sb-run":
		say.Main(name, run)
	case "sb-gate", "sb-dns", "sb-vm":
		say.Main(name, func(args []string) error { return newStandIn(name, args).run() })
	case "sb-image":
		say.Main(name, standInImage)
	}
	// What is started here is to inherit nothing of whoever runs the tests.
	if err := fd.CloseRest(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
