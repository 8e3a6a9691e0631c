// Sb-broker will put credentials into requests on the host, so that a sandbox
// never holds them. It does not do so yet, and refuses to start: a sandbox that
// asks for it gets none, rather than one without what it asked for.
package main

import (
	"fmt"

	"sb/lib/say"
	"sb/sb-broker/keeper"
)

func main() { say.Main("sb-broker", run) }

func run(args []string) error {
	if len(args) > 0 && args[0] == "keep" {
		return keeper.Main(args[1:])
	}
	flags := say.Flags("sb-broker", "", "Puts credentials into requests for bound names. Not part of this release.")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	return fmt.Errorf("sb-broker is not part of this release: nothing is done")
}
