package main

import "golang.org/x/sys/unix"

// oldCalls are those of shownCalls that newer processors lack; musl makes them.
var oldCalls = []shownCall{{unix.SYS_OPEN, 0, 1}, {unix.SYS_CREAT, 0, noFlags}}
