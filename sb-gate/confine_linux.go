package main

import (
	"sb/lib/confine"
	"sb/lib/say"
)

// confineSelf takes away what the gate has no use for once its wires are open:
// every file and every program. It goes on opening sockets.
func confineSelf() error {
	files, err := confine.Files(confine.View{Dial: true})
	if err != nil {
		return err
	}
	calls, err := confine.Calls(true, false)
	if err != nil {
		return err
	}
	for _, lacks := range []string{files, calls} {
		if lacks != "" {
			say.Warn("sb-gate is not confined by %s: this host's kernel has none", lacks)
		}
	}
	return nil
}
