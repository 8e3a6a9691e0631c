package main

import (
	"net/netip"
	"sync"
	"syscall"
	"time"

	"sb/lib/reason"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// flows is everything that is open to the outside or being opened, and the
// bounds of it.
type flows struct {
	max  int           // TCP connections
	live func() uint64 // bytes that the gate holds

	mu       sync.Mutex
	open     map[cutter]bool
	tcp      int // slots, from the judgement of a dial to the end of its flow
	roomy    int // of them, those with large buffers
	udp      int
	pings    int
	dns      int                                // DNS over TCP
	dials    map[stack.TransportEndpointID]slot // TCP connections of which a half is not complete
	each     map[netip.AddrPort]int             // of them, to one destination
	answered map[netip.AddrPort]bool            // destinations to which a dial has come about
	ended    bool                               // nothing new is taken
	idle     chan struct{}                      // closed when it has ended and nothing is open
}

// slot is the right to one TCP connection.
type slot struct {
	to    target
	roomy bool // with large buffers
}

// cutter is a flow of either kind.
type cutter interface {
	// reset ends the flow, for good, and does nothing to one that has ended.
	reset(why reason.Code)
	// stands says whether the rules in force would let it be what it is.
	stands() bool
	// moved is when a byte last did, in Unix nanoseconds.
	moved() int64
	// quiet is how long no byte has moved beyond what may be.
	quiet(now time.Time) bool
}

func newFlows() *flows {
	return &flows{max: flowLimit(), live: liveBytes, open: map[cutter]bool{}, dials: map[stack.TransportEndpointID]slot{}, each: map[netip.AddrPort]int{},
		answered: map[netip.AddrPort]bool{}, idle: make(chan struct{})}
}

// flowLimit is how many flows the descriptors of this process allow: one each,
// with some kept for DNS, the log and control.
func flowLimit() int {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 128
	}
	lim.Cur = lim.Max
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim) != nil {
		syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim)
	}
	spare := int64(min(lim.Cur, 1<<30)) - reserveFiles - maxUDPFlows - maxPings
	return int(max(16, min(maxFlows, spare)))
}

// take reserves a slot for the dial of id, or says which bound is reached. A
// destination that answers is dialled even where dials to others, that do not,
// have come in numbers.
func (fs *flows) take(id stack.TransportEndpointID, to target) reason.Code {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	dialing := len(fs.dials)
	switch {
	case fs.ended:
		return reason.GateEnd
	case fs.tcp >= fs.max && fs.max < maxFlows:
		return reason.DescriptorsOut
	case fs.tcp >= fs.max:
		return reason.FlowBudget
	case dialing >= maxDials || fs.each[to.addr] >= maxDialsEach || dialing >= maxDialsNew && !fs.answered[to.addr]:
		return reason.DialBudget
	case fs.live() > maxLive:
		return reason.MemoryBudget
	}
	s := slot{to, fs.roomy < maxRoomy}
	if s.roomy {
		fs.roomy++
	}
	fs.tcp++
	fs.dials[id] = s
	fs.each[to.addr]++
	return ""
}

// dial is the slot that was taken for id, while its dial lasts.
func (fs *flows) dial(id stack.TransportEndpointID) (s slot, ok bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	s, ok = fs.dials[id]
	return s, ok
}

// dialled ends what bounds dials: both halves are complete (met), or came to
// nothing.
func (fs *flows) dialled(id stack.TransportEndpointID, met bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	addr := fs.dials[id].to.addr
	delete(fs.dials, id)
	if fs.each[addr]--; fs.each[addr] == 0 {
		delete(fs.each, addr)
	}
	if !met || fs.answered[addr] {
		return
	}
	for old := range fs.answered {
		if len(fs.answered) < maxAnswered {
			break
		}
		delete(fs.answered, old) // any: it loses no more than a precedence
	}
	fs.answered[addr] = true
}

// leave gives a slot back.
func (fs *flows) leave(s slot) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if s.roomy {
		fs.roomy--
	}
	fs.tcp--
	fs.settle()
}

// takeOne reserves one of most slots that n counts, or says why not.
func (fs *flows) takeOne(n *int, most int, full reason.Code) reason.Code {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	switch {
	case fs.ended:
		return reason.GateEnd
	case *n >= most:
		return full
	}
	*n++
	return ""
}

// free gives back a slot that n counts.
func (fs *flows) free(n *int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	*n--
	fs.settle()
}

// settle tells who waits for the end that nothing is open; the caller holds mu.
func (fs *flows) settle() {
	if fs.ended && fs.tcp+fs.udp+fs.pings+fs.dns == 0 {
		close(fs.idle)
	}
}

// add makes a flow one that recheck, sweep and the end see; false: the end has
// come already.
func (fs *flows) add(f cutter) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.open[f] = true
	return !fs.ended
}

func (fs *flows) remove(f cutter) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.open, f)
}

// all returns every open flow.
func (fs *flows) all() []cutter {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	all := make([]cutter, 0, len(fs.open))
	for f := range fs.open {
		all = append(all, f)
	}
	return all
}

// sweep ends flows that have been idle for too long, once a minute, until done
// is closed.
func (fs *flows) sweep(done <-chan struct{}) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			fs.sweepAt(now)
		}
	}
}

func (fs *flows) sweepAt(now time.Time) {
	for _, f := range fs.all() {
		if f.quiet(now) {
			f.reset(reason.IdleTimeout)
		}
	}
}

// recheck ends the flows that the rules allow no more.
func (fs *flows) recheck() {
	for _, f := range fs.all() {
		if !f.stands() {
			f.reset(reason.PolicyChanged)
		}
	}
}

// close lets nothing new begin.
func (fs *flows) close() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.ended = true
	fs.settle()
}
