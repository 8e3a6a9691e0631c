package journal

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"sb/lib/audit"
)

// TestLongNames: a refused name may be a part of a request of 64 KiB. Of each as
// much is kept as a name can have, and nothing of the request; each is counted.
func TestLongNames(t *testing.T) {
	const n, size = 1200, 62 << 10
	for _, long := range []bool{false, true} { // the control
		l, path := open(t)
		before := inUse()
		for i := range n {
			request := fmt.Sprintf("%d.example", i) + strings.Repeat("x", size)
			name := request
			if !long {
				name = request[:strings.Index(request, "x")] // as far as "e"
			}
			line := deny(name)
			line.Address, line.Rule = request[:20], request[:10]
			line.Words = []audit.Word{{Key: "type", Value: request[:5]}}
			l.Fold(line)
		}
		// newBurst kinds have lines of their own, all have totals.
		if held := inUse() - before; held > newBurst*size/2 {
			t.Errorf("long %v: %d refusals hold %d KiB", long, n, held>>10)
		}
		counted := int64(0)
		for _, total := range l.Totals() {
			if counted += total.N; len(total.Name) > audit.MaxName {
				t.Fatalf("a name of %d bytes is kept", len(total.Name))
			}
		}
		l.Close()
		written := int64(0)
		for _, line := range lines(t, path) {
			if written += line.Count(); len(line.Name) > audit.MaxName {
				t.Fatalf("a name of %d bytes is written", len(line.Name))
			}
		}
		if counted != n || written != n {
			t.Errorf("long %v: %d are counted and %d written, of %d", long, counted, written, n)
		}
	}
}

// inUse is the bytes of the heap that something holds.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
