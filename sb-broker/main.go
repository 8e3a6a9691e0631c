// Sb-broker puts credentials into requests on the host, so that a sandbox never
// holds them. The gate hands it the connections for names that a credential is
// bound to; it ends TLS on both sides of them, puts a credential where its
// placeholder was presented, and puts the placeholder where a server sends the
// credential back. It dials nothing and opens nothing.
package main

import (
	"sb/lib/say"
	"sb/sb-broker/keep"
)

func main() { say.Main(keep.Tool(), dispatch) }

// dispatch tells the keeper, a process of its own, from the broker.
func dispatch(args []string) error {
	if len(args) > 0 && args[0] == "keep" {
		return keep.Main(args[1:])
	}
	return run(args)
}
