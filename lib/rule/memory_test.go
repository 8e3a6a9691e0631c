package rule

import (
	"runtime"
	"strings"
	"testing"
)

// A name that was read out of a long request keeps nothing else of it.
func TestNameMemory(t *testing.T) {
	const n, size = 200, 64 << 10
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	names := make([]Name, n)
	for i := range names {
		request := "a.example:" + strings.Repeat("0", size)
		var err error
		if names[i], err = ParseName(request[:len("a.example")]); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > n*size/10 {
		t.Errorf("%d names hold %d KiB", n, held>>10)
	}
	runtime.KeepAlive(names)
}
