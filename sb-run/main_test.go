package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
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
	case "sb-gate", "sb-dns", "sb-vm", "sb-broker":
		say.Main(name, func(args []string) error {
			if len(args) > 0 && args[0] == "keep" {
				name = "keeper"
			}
			return newStandIn(name, args).run()
		})
	case "sb-image":
		say.Main(name, standInImage)
	}
	// Under nohup a hangup is ignored, by what is started here too; with a handler
	// it begins with the default.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// What is started here is to inherit nothing of whoever runs the tests.
	if err := fd.CloseRest(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
