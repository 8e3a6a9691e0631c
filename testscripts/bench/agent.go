package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"sb/lib/profile"
	"sb/testscripts/reach"
)

// agent compares starts of Claude Code's sandbox, whose environment is there, with
// those of a shell in the image that it is made of. What a start of the profile adds are
// its user, its files and its state.
func agent() error {
	data, err := filepath.Abs(filepath.Join(".cache", "live"))
	if err != nil {
		return err
	}
	e, err := reach.Open(context.Background(), filepath.Dir(tool("sb-run")), data)
	if err != nil {
		return err
	}
	if took, err := e.Build("claude"); err != nil {
		return err
	} else if took != "" {
		fmt.Printf("the environment of claude was built in %s\n", took)
	}
	p, err := profile.Open(filepath.Join(data, "none")).Find("claude")
	if err != nil {
		return err
	}
	var agents, shells []time.Duration
	for n := range *rounds + 1 {
		a, err := firstOf(e.Command("claude", "--accel", "tcg", "--no-input", "--", "echo", "x"))
		if err != nil {
			return fmt.Errorf("claude: %w", err)
		}
		s, err := firstOf(e.Command("shell", "--image", p.Image[0], "--accel", "tcg", "--no-input", "--", "echo", "x"))
		if err != nil {
			return fmt.Errorf("shell: %w", err)
		}
		if n > 0 { // the first of each may have to be saved
			agents, shells = append(agents, a), append(shells, s)
		}
	}
	fmt.Printf("claude %v\nshell  %v\n", rounded(agents), rounded(shells))
	return report("a second start of claude against one of shell (medians)", float64(median(agents))/float64(median(shells)), "times", 1.30)
}
