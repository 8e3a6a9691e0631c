package undo

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// BenchmarkRecord is the first and a later record of 100,000 files of 1 to 4 KiB.
func BenchmarkRecord(b *testing.B) {
	const files = 100_000
	top := b.TempDir()
	tree := filepath.Join(top, "tree")
	text := make([]byte, 4096)
	for i := range files {
		dir := filepath.Join(tree, fmt.Sprint(i/1000), fmt.Sprint(i/50%20))
		if i%50 == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		copy(text, fmt.Sprint(i))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), text[:1024+i%3072], 0o644); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(racy + time.Second) // else all are new, and read again
	for b.Loop() {
		s, err := openStore(filepath.Join(top, "undo"))
		if err != nil {
			b.Fatal(err)
		}
		take := func(unit string) {
			start, cpu := time.Now(), used()
			r, err := s.Record(b.Context(), tree, "bench", plain)
			if err != nil || r.Files != files {
				b.Fatal(r, err)
			}
			took := time.Since(start).Seconds()
			b.ReportMetric(took, "s/"+unit)
			b.ReportMetric(used()-cpu, "cpu-s/"+unit)
			b.ReportMetric(files/took, "files/s-"+unit)
		}
		take("first")
		take("later")
		s.Close()
		os.RemoveAll(filepath.Join(top, "undo"))
	}
}

// used is what this process has had of the processors, in seconds.
func used() float64 {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}
