package main

import "os/exec"

// endWithUs does nothing here: there is no way to tell. What sb-image fetches is
// published whole or not at all, so that one left alone does no harm.
func endWithUs(*exec.Cmd) (done func()) { return func() {} }
