package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// hostileTest is the test of sb-gate that sends hostile frames, with a good flow
// after each 100,000.
const hostileTest = "TestD5D18Hostile"

// frames has sb-gate's own test send n hostile frames: it makes them, of all kinds,
// from inside.
func frames(r *report, n int) error {
	list, err := exec.Command("go", "test", "sb/sb-gate", "-list", "^"+hostileTest+"$").Output()
	if err != nil {
		return fmt.Errorf("list the tests of sb-gate: %w", err)
	}
	if !strings.HasPrefix(string(list), hostileTest) {
		return fmt.Errorf("sb-gate has no %s", hostileTest)
	}
	cmd := exec.Command("go", "test", "sb/sb-gate", "-count=1", "-timeout=2h", "-v", "-run", "^"+hostileTest+"$", "-frames", fmt.Sprint(n))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		r.fail("%v", err)
	}
	return nil
}
