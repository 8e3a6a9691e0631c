//go:build linux

package share

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// As many requests as may are worked on; the next one waits until one is done.
func TestCallsAreBounded(t *testing.T) {
	s := &session{calls: map[uint64]*call{}, server: &server{buffers: newBuffers(), calls: make(chan struct{}, maxCalls)}}
	for i := range maxCalls {
		s.begin(fusewire.Header{Unique: uint64(i)}, fusewire.In{}, nil)
	}
	begun := make(chan struct{})
	go func() {
		s.begin(fusewire.Header{Unique: maxCalls}, fusewire.In{}, nil)
		close(begun)
	}()
	select {
	case <-begun:
		t.Fatal("one too many was begun")
	case <-time.After(20 * time.Millisecond):
	}
	<-s.server.calls // as work does at its end
	select {
	case <-begun:
	case <-time.After(10 * time.Second):
		t.Error("it is not begun when another is done")
	}
}

// A guest has so many files open, and no more until it closes one.
func TestHandlesAreBounded(t *testing.T) {
	table := &handles{byID: map[uint64]*handle{}, max: 3, nodes: &nodes{}}
	var last uint64
	for range table.max {
		if err := table.full(); err != nil {
			t.Fatal(err)
		}
		last = table.add(&handle{node: &node{}, fd: -1})
	}
	if err := table.full(); err != unix.ENFILE {
		t.Errorf("one too many: %v", err)
	}
	delete(table.byID, last)
	if err := table.full(); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	if l := newLimits(); l.handles <= 0 || l.handles > 1<<16 || l.nodes != 1<<19 {
		t.Errorf("the limits are %+v", l)
	}
}

// Of the directories that were read half-way, those used last are kept open.
func TestListingsAreBounded(t *testing.T) {
	var l listings
	defer l.close()
	var fds []int
	for range maxListings + 5 {
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		l.put(&listing{node: &node{}, fd: fd})
	}
	open := 0
	for _, at := range l.list {
		if _, err := unix.FcntlInt(uintptr(at.fd), unix.F_GETFD, 0); err == nil {
			open++
		}
	}
	if open != maxListings || l.list[0].fd != fds[5] {
		t.Errorf("%d are open, the oldest of them is number %d", open, l.list[0].fd-fds[0])
	}
}
