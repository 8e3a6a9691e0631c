package keep

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/audit"
)

// TestLookupIsListed: what is asked of the host's resolver is in the log, whatever it
// answers: here a name that no one has.
func TestLookupIsListed(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	e := endpoint{url: "https://token.invalid/x", form: func(*tokens, string) map[string]string { return nil }, log: func(l audit.Line) error {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprint(l))
		return nil
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := e.refresh(ctx, &tokens{}); err == nil || !strings.Contains(err.Error(), "ask token.invalid for another") {
		t.Errorf("%v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(lines, "")
	if !strings.Contains(all, " allow look token.invalid ") || !strings.Contains(all, " dial tcp token.invalid - connect-failed - by=sb") {
		t.Errorf("log:\n%s", all)
	}
}
