package journal

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
)

func deny(name string) audit.Line {
	return audit.Line{Verdict: audit.Deny, Gate: audit.DNS, Name: name, Reason: reason.NoAllowRule}
}

func allow(name string) audit.Line {
	return audit.Line{Verdict: audit.Allow, Gate: audit.TCP, Name: name, Address: "192.0.2.1:443", Reason: reason.AllowRule, Rule: name}
}

func open(t *testing.T) (*Log, string) {
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return New(f, nil), path
}

func lines(t *testing.T, path string) (all []audit.Line) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		l, err := audit.Parse(s.Bytes())
		if err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		all = append(all, l)
	}
	return all
}

func TestOrderAndClose(t *testing.T) {
	l, path := open(t)
	for i := range 100 {
		if !l.Allow(allow(fmt.Sprintf("n%d.example", i))) {
			t.Fatal("refused")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, path)
	if len(got) != 100 {
		t.Fatalf("%d lines, want 100", len(got))
	}
	for i, line := range got {
		if line.Name != fmt.Sprintf("n%d.example", i) {
			t.Fatalf("line %d is of %s", i, line.Name)
		}
	}
}

// G18: a flood of refusals is few lines that count every one of them, be it of
// one name or of as many as there are refusals; a line of something let out in
// the middle of it is there all the same.
func TestFlood(t *testing.T) {
	for _, many := range []bool{false, true} {
		l, path := open(t)
		const n = 200_000
		for i := range n {
			name := "one.example"
			if many {
				name = fmt.Sprintf("x%d.example", i)
			}
			l.Fold(deny(name))
			if i == n/2 && !l.Allow(allow("good.example")) {
				t.Fatal("an allow was refused")
			}
		}
		l.Close()
		total, good := int64(0), 0
		got := lines(t, path)
		for _, line := range got {
			if line.Verdict == audit.Deny {
				total += line.Count()
			} else {
				good++
			}
		}
		if total != n || good != 1 || len(got) > 100 {
			t.Errorf("many names %v: %d lines that count %d of %d refusals, %d allows", many, len(got), total, n, good)
		}
	}
}

// A flood that lasts is as short: half a minute of refusals, of a thousand kinds
// that come again and again and of others that come once. Without a flood, each
// kind has its lines.
func TestLongFlood(t *testing.T) {
	for _, flood := range []bool{true, false} {
		l, path := open(t)
		l.mu.Lock()
		now := time.Now()
		l.now = func() time.Time { return now }
		l.mu.Unlock()
		want := int64(0)
		for step := range 300 { // a tenth of a second each
			each := 1
			if flood {
				each = 800
			}
			for i := range each {
				l.Fold(deny(fmt.Sprintf("x%d.example", (step*7+i)%1000)))
				if flood && i%3 == 0 {
					l.Fold(deny(fmt.Sprintf("y%d-%d.example", step, i)))
					want++
				}
				want++
			}
			l.mu.Lock()
			now = now.Add(100 * time.Millisecond)
			l.unfold(false)
			l.mu.Unlock()
		}
		l.Close()
		total := int64(0)
		got := lines(t, path)
		for _, line := range got {
			total += line.Count()
		}
		if total != want {
			t.Errorf("flood %v: %d of %d are counted", flood, total, want)
		}
		if flood && len(got) > 200 || !flood && len(got) < 250 {
			t.Errorf("flood %v: %d lines", flood, len(got))
		}
	}
}

// A log that cannot be written for long drops lines about what was let out, and
// says how many when it can be again.
func TestDroppedLines(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, nil)
	line := allow(strings.Repeat("a", 200) + ".example")
	many := int64(2 * maxHeld / 200)
	for range many {
		l.Record(line)
	}
	if n := pendingBytes(l); n > maxHeld {
		t.Errorf("%d bytes wait", n)
	}
	path := filepath.Join(t.TempDir(), "next")
	next, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Replace(next)
	l.Close()
	written, dropped := int64(0), int64(0)
	for _, line := range lines(t, path) {
		if line.Reason == reason.Dropped {
			dropped += line.Count()
		} else {
			written++
		}
	}
	if dropped == 0 || written == 0 || written+dropped != many {
		t.Errorf("%d lines are written and %d dropped, of %d", written, dropped, many)
	}
}

// What is counted already may come with its own number.
func TestFoldCounts(t *testing.T) {
	l, path := open(t)
	line := deny("")
	line.Words = []audit.Word{audit.Int("n", 40)}
	for range 3 {
		l.Fold(line)
	}
	l.Close()
	total := int64(0)
	for _, line := range lines(t, path) {
		total += line.Count()
	}
	if total != 120 {
		t.Errorf("%d are counted, not 120", total)
	}
}

func TestTotals(t *testing.T) {
	l, _ := open(t)
	for i := range 2 * maxTotals {
		l.Fold(deny(fmt.Sprintf("x%d.example", i)))
	}
	for range 5 {
		l.Fold(deny("x1.example"))
	}
	got := l.Totals()
	l.Close()
	if len(got) != maxTotals+1 || got[0].N != maxTotals || got[0].Name != "" || got[1].Name != "x1.example" || got[1].N != 6 {
		t.Errorf("%d totals, the first %+v %+v", len(got), got[0], got[1])
	}
}

// G19, G27: a log that cannot be written lets nothing out; when it can be again,
// no line is missing.
func TestFullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("open a full disk: %v", err)
	}
	l := New(f, nil)
	if !l.Allow(allow("a.example")) {
		t.Fatal("refused before a write failed")
	}
	for deadline := time.Now().Add(5 * time.Second); l.Usable(); {
		if time.Now().After(deadline) {
			t.Fatal("still usable")
		}
		time.Sleep(time.Millisecond)
	}
	if l.Allow(allow("b.example")) {
		t.Fatal("let out without a log")
	}
	path := filepath.Join(t.TempDir(), "next")
	next, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Replace(next)
	if !l.Allow(allow("c.example")) {
		t.Fatal("refused although there is room again")
	}
	l.Close()
	got := lines(t, path)
	if len(got) != 2 || got[0].Name != "a.example" || got[1].Name != "c.example" {
		t.Errorf("lines %v", got)
	}
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	file := func(n int) *os.File {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	asked := make(chan struct{}, 10)
	first := file(0)
	first.Truncate(MaxSize - 100)
	first.Seek(0, 2)
	l := New(first, func() { asked <- struct{}{} })
	l.Allow(allow("a.example"))
	l.Allow(allow("b.example"))
	<-asked
	l.Replace(file(1))
	l.Allow(allow("c.example"))
	l.Close()
	if len(asked) != 0 {
		t.Error("asked for a new file twice")
	}
	if got := lines(t, filepath.Join(dir, "1")); len(got) != 1 || got[0].Name != "c.example" {
		t.Errorf("the new file holds %v", got)
	}
}

// A log that is replaced while a write to the old file hangs stays usable, and
// the line in the middle of which that write broke off is in the new one.
func TestReplaceWhileWriting(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := New(w, nil)
	const n = 4000 // more than two pipes hold
	l.mu.Lock()
	for i := range n { // written in one go
		l.queue(allow(fmt.Sprintf("n%d.example", i)))
	}
	l.mu.Unlock()
	for deadline := time.Now().Add(5 * time.Second); pendingBytes(l) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is being written")
		}
	}
	r2, next, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	l.Replace(next) // where the write hangs again, since nobody reads
	for deadline := time.Now().Add(50 * time.Millisecond); time.Now().Before(deadline); {
		if !l.Usable() {
			t.Fatal("not usable although there is a new file")
		}
	}
	text := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(r2)
		text <- b
	}()
	l.Close()
	old, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(path, <-text, 0o600); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Count(old, []byte("\n"))
	got := lines(t, path)
	if whole+len(got) != n || got[len(got)-1].Name != fmt.Sprintf("n%d.example", n-1) || got[0].Name != fmt.Sprintf("n%d.example", whole) {
		t.Errorf("%d whole lines are in the old file and %d in the new, of %d", whole, len(got), n)
	}
}

func pendingBytes(l *Log) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

// A log that cannot be written keeps counting refusals, in no more memory.
func TestFullDiskIsBounded(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := New(f, nil)
	now := time.Now()
	l.mu.Lock()
	l.now = func() time.Time { return now }
	l.pending = make([]byte, maxPending)
	l.mu.Unlock()
	for i := range 100 {
		for range 10 {
			l.Fold(deny("a.example"))
		}
		l.mu.Lock()
		now = now.Add(time.Duration(i) * time.Minute)
		l.unfold(false)
		l.mu.Unlock()
	}
	l.mu.Lock()
	size := len(l.pending)
	n := l.kinds[kind{verdict: audit.Deny, gate: audit.DNS, name: "a.example", reason: string(reason.NoAllowRule)}].n
	l.pending = nil
	l.mu.Unlock()
	if size > maxPending || n != 1000 {
		t.Errorf("%d bytes wait, %d refusals are counted", size, n)
	}
	l.Close()
}
