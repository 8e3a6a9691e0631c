// Sb-kit will read Docker Sandboxes kits and write profiles. It does not do so
// yet, and refuses to start rather than import half of one.
package main

import (
	"fmt"

	"sb/lib/say"
)

func main() { say.Main("sb-kit", run) }

func run(args []string) error {
	flags := say.Flags("sb-kit", "", "Reads Docker Sandboxes kits. Not part of this release.")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	return fmt.Errorf("sb-kit is not part of this release: nothing is done")
}
