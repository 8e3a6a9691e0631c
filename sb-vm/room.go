package main

import (
	"os"
	"path/filepath"
	"time"

	"sb/lib/manifest"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

const (
	roomTime  = time.Second // between two looks
	leastRoom = 1 << 20     // bytes: below that the host has no room
)

// room looks after the room that this host has for what the guest writes to its disks.
// Where there is none, an error of the disk reaches the guest's kernel, and seldom the
// program that wrote: what it reads later is other than that. Nobody inside says so.
type room struct {
	disks []string
	told  bool
}

func newRoom(m *manifest.Manifest) *room {
	r := &room{disks: []string{m.Machine.Disk}}
	if m.Machine.Kept != "" {
		r.disks = append(r.disks, m.Machine.Kept)
	}
	return r
}

// look says once that there is no room.
func (r *room) look() {
	for _, disk := range r.disks {
		var st unix.Statfs_t
		if r.told || unix.Statfs(filepath.Dir(disk), &st) != nil {
			continue
		}
		free := st.Bavail
		if os.Geteuid() == 0 {
			free = st.Bfree // what is kept back is kept for root
		}
		if free*uint64(st.Bsize) < leastRoom {
			r.told = true
			say.Warn("this host has no room left for %s: what the machine writes to its disk is lost, and what it reads there may be other than what it wrote: make room, and do again what it did since", disk)
		}
	}
}
