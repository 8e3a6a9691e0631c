//go:build linux

package main

import (
	"net"
	"testing"

	"sb/lib/confine/confinetest"
)

// confinedMain is a copy of the test program that does what the gate does before
// it is ready.
func confinedMain() int {
	interfaces := confinetest.Probe{Name: "interfaces", Try: func() error { _, err := net.InterfaceAddrs(); return err }}
	return confinetest.Main(confineSelf, append(confinetest.Usual(), interfaces)...)
}

// TestConfined: once its wires are open the gate can open no file and start no
// program, and still dials and sees the host's addresses.
func TestConfined(t *testing.T) {
	confinetest.Run(t, inWorld+"=confined", "open: refused", "write: refused", "exec: refused", "tcp: yes", "interfaces: yes")
}
