//go:build linux

package share

import "golang.org/x/sys/unix"

// asOwner runs act, which uses the given places. The guest's kernel lets the
// guest's root do what a mode forbids the owner, such as to write to a read-only
// file or to delete from a read-only directory. This process is the owner, so
// for the guest's root it gives itself the right for as long as act takes.
func (s *session) asOwner(c *call, act func() error, on ...*place) error {
	err := s.descriptor(act)
	if err != unix.EACCES || c.h.UID != 0 || s.x.asRoot || s.x.readOnly {
		return err
	}
	s.widening.Lock()
	defer s.widening.Unlock()
	for _, p := range on {
		var st unix.Statx_t
		if p.node == nil || statFD(p.fd, &st) != nil || st.Uid != s.x.uid.host || s.nodes.standing(p.node)&protected != 0 {
			continue
		}
		mode := uint32(st.Mode) & 0o7777
		wide := mode | 0o600
		switch fileType(&st) {
		case unix.S_IFDIR:
			wide |= 0o700
		case unix.S_IFREG:
		default:
			continue
		}
		if wide != mode && s.chmod(p.fd, wide) == nil {
			defer s.chmod(p.fd, mode)
		}
	}
	return s.descriptor(act)
}
