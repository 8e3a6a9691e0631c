//go:build linux

package share

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// watch is the watch on one directory. nodes.mu guards it.
type watch struct {
	watcher *watcher
	wd      int32
	dir     *node
	seq     uint64          // counts events
	absent  map[string]bool // names the guest was told do not exist
	ended   bool
}

// watcher turns inotify's events of a share into what must be called back from
// the guest. nodes.mu guards it.
type watcher struct {
	file *os.File // nil: nothing can be watched, or not any more
	fd   int      // of file
	byWD map[int32]*watch
	max  int
	// absent counts the absent names of all watches.
	absent int
}

func newWatcher(max int) *watcher {
	w := &watcher{byWD: map[int32]*watch{}, max: max}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		w.file, w.fd = os.NewFile(uintptr(fd), "inotify"), fd
	}
	return w
}

const (
	watchNames = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	watchSelf  = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	watchData  = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	watchMask  = watchNames | watchSelf | watchData | unix.IN_ONLYDIR
)

// add watches dir, whose descriptor is fd, or returns nil if that cannot be. The
// caller holds nodes.mu.
func (w *watcher) add(dir *node, fd int) *watch {
	if w.file == nil || !dir.dev.local || dir.unwatchable || len(w.byWD) >= w.max {
		return nil
	}
	wd, err := unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(fd), watchMask)
	if err == unix.ENOSPC || err == unix.ENOMEM {
		w.max = len(w.byWD) // the user's limit
		return nil
	}
	if err != nil || w.byWD[int32(wd)] != nil {
		dir.unwatchable = true
		return nil
	}
	dir.watch = &watch{watcher: w, wd: int32(wd), dir: dir}
	w.byWD[dir.watch.wd] = dir.watch
	return dir.watch
}

// isAbsent tells whether the guest was told that there is no name. A nil watch
// is none.
func (w *watch) isAbsent(name string) bool { return w != nil && w.absent[name] }

// maxAbsent is how many absent names of one directory are remembered, and
// maxAbsentAll of all.
const (
	maxAbsent    = 1024
	maxAbsentAll = 1 << 16
)

// addAbsent remembers that the guest was told so, if it can.
func (w *watch) addAbsent(name string) bool {
	if w.absent[name] {
		return true
	}
	if len(w.absent) >= maxAbsent || w.watcher.absent >= maxAbsentAll {
		return false
	}
	if w.absent == nil {
		w.absent = map[string]bool{}
	}
	w.absent[name] = true
	w.watcher.absent++
	return true
}

// present forgets that the guest was told that there is no name.
func (w *watch) present(name string) {
	if w.isAbsent(name) {
		delete(w.absent, name)
		w.watcher.absent--
	}
}

// end removes the watch; a nil one is none.
func (w *watch) end() {
	if w == nil || w.ended {
		return
	}
	w.forget()
	if w.watcher.file != nil {
		unix.InotifyRmWatch(w.watcher.fd, uint32(w.wd))
	}
}

// forget is end for a watch that inotify has removed.
func (w *watch) forget() {
	w.ended = true
	w.watcher.absent -= len(w.absent)
	w.absent = nil
	w.dir.watch = nil
	delete(w.watcher.byWD, w.wd)
}

// watching reads events from f, the watcher's file, until it is closed.
func (s *session) watching(f *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		s.nodes.mu.Lock()
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			le := binary.LittleEndian
			end := unix.SizeofInotifyEvent + int(le.Uint32(b[12:]))
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
			s.event(int32(le.Uint32(b)), le.Uint32(b[4:]), name)
			b = b[end:]
		}
		s.nodes.mu.Unlock()
	}
}

// event notes what one event may have made false of what the guest was told.
// The caller holds nodes.mu.
func (s *session) event(wd int32, mask uint32, name []byte) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		s.overflow()
		return
	}
	w := s.watcher.byWD[wd]
	if w == nil {
		return
	}
	w.seq++
	if mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 {
		s.unwatched(w)
		w.forget()
		return
	}
	if mask&watchSelf != 0 {
		s.places.lose(w.dir)
	}
	if len(name) == 0 || mask&watchNames != 0 {
		s.notices.check(w.dir, "")
	}
	if len(name) > 0 {
		kid := w.dir.kids[string(name)]
		if kid != nil && mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 && kid.isDir() {
			s.places.lose(kid)
		}
		known := kid != nil && (kid.told || mask&watchNames != 0)
		if known || w.isAbsent(string(name)) {
			s.notices.check(w.dir, string(name))
		} else if kid == nil && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
			s.notices.checkUnknown(w.dir, string(name))
		}
	}
}

// unwatched checks all that the guest may believe because of w.
func (s *session) unwatched(w *watch) {
	s.notices.check(w.dir, "")
	for name := range w.dir.kids {
		s.notices.check(w.dir, name)
	}
	for name := range w.absent {
		s.notices.check(w.dir, name)
	}
}

// overflow is called when events were lost.
func (s *session) overflow() {
	for _, w := range s.watcher.byWD {
		w.seq++
		s.unwatched(w)
	}
}
