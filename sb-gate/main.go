// Sb-gate is a sandbox's network: a user-mode TCP/IP stack on the machine's wire
// that decides about every flow and dials out what the rules allow.
//
// No byte of the guest's leaves before the verdict. An address of the pool
// stands for exactly one name; every TCP flow must show by its first bytes that
// it is TLS or HTTP for that name, or have a rule with its port. Every decision
// is a line of the audit log, and so is everything else that leaves.
package main

import (
	"runtime"

	"sb/lib/say"
)

func main() {
	// A byte is passed from one goroutine to the next, which costs little on one
	// processor and a wake-up of another for each hop on several. It is also all
	// that a guest can take of the host's.
	runtime.GOMAXPROCS(1)
	say.Main("sb-gate", run)
}
