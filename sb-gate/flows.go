package main

import (
	"net/netip"
	"sync"
	"syscall"
	"time"

	"sb/lib/reason"
)

// flows is the TCP connections that are open or being opened, and their bounds.
type flows struct {
	max int

	mu      sync.Mutex
	open    map[*flow]bool
	taken   int // slots, from the judgement of a dial to the end of its flow
	dialing int
	each    map[netip.AddrPort]int // of those, by what the guest dialled
}

func newFlows() *flows {
	return &flows{max: flowLimit(), open: map[*flow]bool{}, each: map[netip.AddrPort]int{}}
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
	return int(max(16, min(maxFlows, int64(lim.Cur)-reserveFiles)))
}

// take reserves a slot for a dial to addr, or says which bound is reached.
func (fs *flows) take(addr netip.AddrPort) reason.Code {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	switch {
	case fs.taken >= fs.max && fs.max < maxFlows:
		return reason.DescriptorsOut
	case fs.taken >= fs.max:
		return reason.FlowBudget
	case fs.dialing >= maxDials || fs.each[addr] >= maxDialsEach:
		return reason.DialBudget
	}
	fs.taken++
	fs.dialing++
	fs.each[addr]++
	return ""
}

// dialled gives back the part of a slot that bounds dials: f is the flow that
// came of it, nil if none did.
func (fs *flows) dialled(addr netip.AddrPort, f *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.dialing--
	if fs.each[addr]--; fs.each[addr] == 0 {
		delete(fs.each, addr)
	}
	if f == nil {
		fs.taken--
	} else {
		fs.open[f] = true
	}
}

// end gives back the slot of a flow.
func (fs *flows) end(f *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.open[f] {
		delete(fs.open, f)
		fs.taken--
	}
}

// each calls fn for every open flow.
func (fs *flows) all() []*flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	all := make([]*flow, 0, len(fs.open))
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
			for _, f := range fs.all() {
				if now.UnixNano()-f.active.Load() > int64(idleTime) {
					f.reset(reason.IdleTimeout)
				}
			}
		}
	}
}

// recheck ends the flows that the rules allow no more.
func (fs *flows) recheck() {
	for _, f := range fs.all() {
		if _, v := f.g.judgeAgain(f); !v.Allow {
			f.reset(reason.PolicyChanged)
		}
	}
}
