// Package journal writes the audit log: every decision of the gate, one line
// each, to a descriptor that was opened for it.
//
// What lets bytes out is written line by line, and is let out only if its line
// could be queued. Refusals, which a guest can cause without end, are folded:
// the first of its kind is a line at once, its repeats are counted and become a
// line with their exact number (n=) after a second, two, four, up to a minute;
// kinds that come too fast to have lines of their own are counted together by
// gate and reason. As long as that goes on, few other lines are written about
// refusals.
package journal

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
)

// The bounds of the log.
const (
	MaxSize    = 32 << 20 // bytes of a file, then a new one is asked for
	maxPending = 1 << 20  // bytes that wait to be written, before flows are refused
	maxHeld    = 4 << 20  // before lines about what was let out are dropped, and counted
	maxKinds   = 512      // kinds of refusals that are counted at a time
	newPerSec  = 10       // kinds a second that get a line of their own
	newBurst   = 30
	inFlood    = 1 // lines a second instead, for floodTime after one that got none
	floodTime  = time.Second
	firstWait  = time.Second
	longWait   = time.Minute
)

// Log is the writer. Its methods may be called by any goroutine.
type Log struct {
	full func() // asks for a new file
	now  func() time.Time

	mu      sync.Mutex
	out     *os.File
	retired []*os.File // files that were replaced, for the writer to close
	size    int64
	asked   bool
	pending []byte
	writing int // bytes of what was taken from there and is being written
	failed  error
	lost    int64 // lines that were dropped since the last note of it
	wake    chan struct{}
	done    chan struct{}
	closing bool

	kinds   map[kind]*fold
	tokens  float64
	filled  time.Time
	flooded time.Time // when a kind last got no line of its own
	totals  totals
}

// kind is what two refusals must share to be folded.
type kind struct {
	verdict            audit.Verdict
	gate               audit.Gate
	name, addr         string
	reason, rule, word string
}

// together says whether a kind is all of its gate and reason.
func (k kind) together() bool { return k.name == "" && k.addr == "" }

// own is the kind in memory of its own: its name may be a part of a request of
// 64 KiB, which nobody else needs any more.
func (k kind) own() kind {
	for _, s := range []*string{&k.name, &k.addr, &k.reason, &k.rule, &k.word} {
		*s = strings.Clone(*s)
	}
	return k
}

type fold struct {
	n    int64
	wait time.Duration
	due  time.Time
}

// New writes to out, which it takes over. full is called, once for each file,
// when the file has reached MaxSize; Replace then brings the next.
func New(out *os.File, full func()) *Log {
	l := &Log{full: full, now: time.Now, out: out, size: fileSize(out), wake: make(chan struct{}, 1), done: make(chan struct{}),
		kinds: map[kind]*fold{}, tokens: newBurst, filled: time.Now(), totals: newTotals()}
	go l.write()
	return l
}

// fileSize is how much a file holds already; 0 for a pipe or a terminal.
func fileSize(f *os.File) int64 {
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		return st.Size()
	}
	return 0
}

func isFile(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode().IsRegular()
}

// Allow queues the line that lets something out. False: the log cannot take it,
// so nothing may go out.
func (l *Log) Allow(line audit.Line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil || l.waiting()+audit.MaxLine > maxPending {
		return false
	}
	l.queue(line)
	return true
}

// waiting is how many bytes are not written yet; the caller holds mu.
func (l *Log) waiting() int { return len(l.pending) + l.writing }

// Usable reports whether Allow would take a line now.
func (l *Log) Usable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed == nil && l.waiting()+audit.MaxLine <= maxPending
}

// Record queues a line about what has been let out already. It cannot be refused;
// if the log cannot be written for long, it is dropped, and the log says so.
func (l *Log) Record(line audit.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting()+audit.MaxLine > maxHeld {
		l.lost++
		return
	}
	l.queue(line)
}

// tellLost notes how many lines were dropped; the caller holds mu.
func (l *Log) tellLost() {
	if l.lost > 0 && l.waiting()+audit.MaxLine <= maxHeld {
		l.queue(audit.Line{Verdict: audit.Note, Gate: audit.Run, Reason: reason.Dropped, Words: []audit.Word{audit.Int("n", l.lost)}})
		l.lost = 0
	}
}

// Fold counts a decision of which the guest can cause any number.
func (l *Log) Fold(line audit.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line = line.Cut()
	l.totals.add(line)
	k := kind{line.Verdict, line.Gate, line.Name, line.Address, string(line.Reason), line.Rule, line.Word("type")}
	f := l.kinds[k]
	switch {
	case f != nil:
		f.n += line.Count()
	case len(l.kinds) < maxKinds && l.token():
		f = &fold{wait: firstWait, due: l.now().Add(firstWait)}
		l.kinds[k.own()] = f
		if l.waiting() < maxPending {
			l.queue(line)
		} else {
			f.n += line.Count()
		}
	default:
		l.foldTogether(line)
	}
}

// foldTogether counts a refusal with all others of its gate and reason.
func (l *Log) foldTogether(line audit.Line) {
	k := kind{verdict: line.Verdict, gate: line.Gate, reason: string(line.Reason)}.own()
	f := l.kinds[k]
	if f == nil {
		f = &fold{wait: firstWait, due: l.now().Add(firstWait)}
		l.kinds[k] = f
	}
	f.n += line.Count()
	l.flooded = l.now()
}

// token takes one from the bucket that limits how fast new kinds get lines.
func (l *Log) token() bool {
	now, rate := l.now(), float64(newPerSec)
	if l.flood() {
		rate = inFlood
	}
	l.tokens = min(newBurst, l.tokens+now.Sub(l.filled).Seconds()*rate)
	l.filled = now
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}

func (l *Log) flood() bool { return l.now().Sub(l.flooded) < floodTime }

// queue appends the line; the caller holds mu.
func (l *Log) queue(line audit.Line) {
	if line.Time.IsZero() {
		line.Time = l.now()
	}
	l.pending = line.Append(l.pending)
	l.kick()
}

func (l *Log) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// unfold queues the counts that are due, all of them at the end.
func (l *Log) unfold(all bool) {
	if l.waiting() >= maxPending && !all {
		return // they are counted on, until there is room
	}
	now := l.now()
	for k, f := range l.kinds {
		if !all && now.Before(f.due) {
			continue
		}
		if f.n == 0 {
			delete(l.kinds, k)
			continue
		}
		if !all && !k.together() && l.flood() && !l.token() {
			continue // it is counted on
		}
		words := []audit.Word{audit.Int("n", f.n)}
		if k.word != "" {
			words = append(words, audit.Word{Key: "type", Value: k.word})
		}
		l.queue(audit.Line{Verdict: k.verdict, Gate: k.gate, Name: k.name, Address: k.addr, Reason: reason.Code(k.reason), Rule: k.rule, Words: words})
		f.n = 0
		f.wait = min(2*f.wait, longWait)
		f.due = now.Add(f.wait)
	}
}

// Unfold queues the counts that are not due yet.
func (l *Log) Unfold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unfold(true)
}

// write is the goroutine that owns the file. A failed write keeps its lines and
// is tried again, so that a log that has room again goes on without a gap.
func (l *Log) write() {
	defer close(l.done)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
		case <-tick.C:
		}
		l.mu.Lock()
		l.unfold(l.closing)
		l.tellLost()
		batch, out, closing := l.pending, l.out, l.closing
		retired := l.retired
		l.pending, l.retired, l.writing = nil, nil, len(batch)
		l.mu.Unlock()
		for _, f := range retired {
			f.Close()
		}
		if len(batch) == 0 && !closing {
			continue
		}
		n, err := out.Write(batch)
		whole := bytes.LastIndexByte(batch[:n], '\n') + 1
		undone := err != nil && takeBack(out, n-whole)
		l.mu.Lock()
		if undone || err != nil && l.out != out {
			n = whole // the line that it broke off in is written again
		}
		l.pending, l.writing = append(batch[n:], l.pending...), 0
		l.tellLost()
		if l.out == out { // else it was replaced meanwhile, and how it fared is of no interest
			l.size += int64(n)
			l.failed = err
		}
		rotate := l.size >= MaxSize && !l.asked && l.full != nil
		l.asked = l.asked || rotate
		more := len(l.pending) > 0 && l.failed == nil
		l.mu.Unlock()
		if rotate {
			l.full()
		}
		if closing && !more {
			return
		}
		if more {
			l.kick()
		}
	}
}

// takeBack cuts off the n bytes of a line that a failed write left at the end of
// a file, and says whether it could.
func takeBack(out *os.File, n int) bool {
	if n == 0 || !isFile(out) || out.Truncate(fileSize(out)-int64(n)) != nil {
		return false
	}
	_, err := out.Seek(0, io.SeekEnd)
	return err == nil
}

// Replace goes on in another file, which the log takes over, and closes the one
// before it. What was not written there is written to the new one.
func (l *Log) Replace(out *os.File) {
	l.mu.Lock()
	old := l.out
	l.out, l.size, l.asked, l.failed = out, fileSize(out), false, nil
	if isFile(old) {
		l.retired, old = append(l.retired, old), nil // the writer may have a line to take back in it
	}
	l.mu.Unlock()
	l.kick()
	if old != nil {
		old.Close() // which ends a write that hangs
	}
}

// Close writes what waits, the counts that are not due yet included, and closes
// the file. The error is that of the last write.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	l.kick()
	<-l.done
	l.out.Close()
	return l.failed
}

// Totals returns how often each name was refused for each reason, over the
// whole run, most frequent first.
func (l *Log) Totals() []Total {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totals.list()
}
