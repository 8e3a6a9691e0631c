//go:build linux

package share

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Some directories take several spellings for one name: other case, other
// Unicode forms, the short names of FAT. Rules are about names, so where there
// are rules the guest can use none but the spelling that stands in the directory.

// spelling is what is known of a directory.
type spelling uint8

const (
	unknown spelling = iota
	strict           // one spelling
	loose
)

// spelled refuses another spelling of the name of st than the directory has.
func (s *session) spelled(at *spot, st *unix.Statx_t) error {
	if len(s.x.rules.all) == 0 {
		return nil
	}
	s.nodes.mu.Lock()
	how := at.dir.spelling
	s.nodes.mu.Unlock()
	if other := otherCase(at.name); how == unknown && other != at.name {
		how = strict
		if s.leadsTo(at.fd, other, st) {
			how = loose
		}
		s.nodes.mu.Lock()
		at.dir.spelling = how
		s.nodes.mu.Unlock()
	}
	// A directory that tells case apart may take other spellings all the same:
	// short names (NTFS) or other Unicode forms.
	switch {
	case how == loose || shortened(at.name):
		return s.listed(at)
	case s.misspelled(at, st):
		return unix.ENOENT
	}
	return nil
}

// leadsTo tells whether name in the directory fd is the file st.
func (s *session) leadsTo(fd int, name string, st *unix.Statx_t) bool {
	var other unix.Statx_t
	return statAt(fd, name, &other) == nil && inodeOf(&other) == inodeOf(st)
}

// listed is ENOENT unless a spot's name stands in the directory just so.
func (s *session) listed(at *spot) error {
	fd, err := s.reopen(at.fd, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	l := listing{fd: fd}
	for {
		e, err := l.peek()
		if err != nil {
			return err
		}
		if e.size == 0 {
			return unix.ENOENT
		}
		if string(e.name) == at.name {
			return nil
		}
		l.rest = l.rest[e.size:]
	}
}

// misspelled tells whether the file st at a spot is what a rule names, which the
// spot's own name is not: then that is another spelling of it. Globs cannot be
// asked so; they are only held against the name as it is.
func (s *session) misspelled(at *spot, st *unix.Statx_t) bool {
	if s.x.rules.oneSpelling(at.name) {
		return false
	}
	odd := !plain(at.name)
	for _, name := range s.nodes.ruledNames(at.dir) {
		// Two plain names differ in case alone, which rules pass over.
		if (odd || !plain(name)) && name != strings.ToLower(at.name) && s.leadsTo(at.fd, name, st) {
			return true
		}
	}
	return false
}

// ruledNames are the names without globs that rules have for files in dir.
func (t *nodes) ruledNames(dir *node) (names []string) {
	if len(t.rules.all) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progress(dir, 0)
	for i, r := range t.rules.all {
		for j, part := range r.parts {
			if p[i]&(1<<j) != 0 && !isGlob(part) {
				names = append(names, part)
			}
		}
	}
	return names
}

// oneSpelling tells a name that is no other spelling of a rule's, but in case.
func (rs *rules) oneSpelling(name string) bool {
	return len(rs.all) == 0 || !rs.odd && plain(name)
}

// plain tells a name that has no other spelling but in case, which rules pass
// over.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '}' || c == ':' {
			return false
		}
	}
	return !strings.HasSuffix(name, ".") && !strings.HasSuffix(name, " ")
}

// shortened tells a name that may be the short one of a longer name: GIT~1.
func shortened(name string) bool {
	i := strings.IndexByte(name, '~')
	return i > 0 && len(name) <= 12 && i+1 < len(name) && name[i+1] >= '1' && name[i+1] <= '9'
}

// otherCase is name with the case of its ASCII letters turned round.
func otherCase(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c|0x20 >= 'a' && c|0x20 <= 'z' {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}
