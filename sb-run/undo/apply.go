package undo

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// errMeanwhile is of a path that is not as it was recorded a moment ago.
var errMeanwhile = errors.New("changed meanwhile")

// unchanged checks that a name stands for what was recorded there a moment ago, or
// for nothing. The time of its inode does not count: it changes with other names.
func (r *restorer) unchanged(at int, name string, was *Entry) error {
	st, err := statAt(at, name)
	switch {
	case err == unix.ENOENT && was == nil:
		return nil
	case err == unix.ENOENT:
		return errMeanwhile
	case err != nil:
		return err
	case was == nil:
		return errMeanwhile
	}
	return r.unchangedStat(&st, was)
}

func (r *restorer) unchangedStat(st *unix.Stat_t, was *Entry) error {
	is := identity(st)
	kind := map[Kind]uint32{File: unix.S_IFREG, Dir: unix.S_IFDIR, Link: unix.S_IFLNK}[was.Kind]
	switch {
	case !isType(st, kind) || is.Dev != was.Identity.Dev || is.Ino != was.Identity.Ino:
		return errMeanwhile
	case was.Kind != Dir && timeOf(st.Mtim) != was.Mtime && timeOf(st.Mtim) != r.touched[inode{is.Dev, is.Ino}], was.Kind == File && st.Size != was.Size:
		return errMeanwhile
	}
	return nil
}

// remove takes away what is there and not in the record, or in the way.
func (r *restorer) remove(at int, name string, c *Change) error {
	if err := r.unchanged(at, name, c.New); err != nil {
		return err
	}
	flags := 0
	if c.New.Kind == Dir {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(at, name, flags)
}

// there is what is at a path by now, of what was recorded: nothing if it was
// removed before.
func there(c *Change) *Entry {
	if gives(c) {
		return nil
	}
	return c.New
}

// dir makes a directory, if there is none, with its own permissions in the end.
func (r *restorer) dir(at int, name string, c *Change) error {
	if was := there(c); was != nil {
		if err := r.unchanged(at, name, was); err != nil {
			return err
		}
	} else if err := unix.Mkdirat(at, name, 0o700); err == unix.EEXIST {
		return errMeanwhile
	} else if err != nil {
		return err
	}
	fd, err := openDirAt(at, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return r.visit(fd, c.Path)
}

// touch gives a file that has the right bytes the rest.
func (r *restorer) touch(at int, name string, c *Change) error {
	fd, err := openAt(at, name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := stat(fd)
	if err == nil {
		err = r.unchangedStat(&st, c.New)
	}
	if err == nil {
		err = setAll(fd, c.Old)
	}
	if err != nil {
		return err
	}
	// Its other names have that time too, which is to be no surprise there.
	r.touched[inode{uint64(st.Dev), st.Ino}] = c.Old.Mtime
	return setTime(at, name, c.Old.Mtime)
}

// Made is a pattern of what files are called while they are made beside those that
// they replace. A guest that could change one would have changed what it becomes.
const Made = ".sb-undo-*"

// replace has make make a file by a temporary name, and gives it its own if what
// is there is what was recorded.
func (r *restorer) replace(at int, name string, c *Change, make func(temp string) error) error {
	random := [8]byte{}
	rand.Read(random[:])
	temp := strings.TrimSuffix(Made, "*") + hex.EncodeToString(random[:])
	err := make(temp)
	if err == nil {
		err = r.unchanged(at, name, there(c))
	}
	if err == nil {
		err = unix.Renameat(at, temp, at, name)
	}
	// Also where it has not failed: a rename of two names of one file does nothing.
	if uerr := unix.Unlinkat(at, temp, 0); err != nil && uerr != nil && uerr != unix.ENOENT {
		err = errors.Join(err, fmt.Errorf("%s is left there: %w", temp, uerr))
	}
	return err
}

func (r *restorer) link(at int, name string, c *Change) error {
	return r.replace(at, name, c, func(temp string) error {
		if err := unix.Symlinkat(c.Old.Target, at, temp); err != nil {
			return err
		}
		if st, err := statAt(at, temp); err == nil && (st.Uid != c.Old.UID || st.Gid != c.Old.GID) {
			if err := unix.Fchownat(at, temp, int(c.Old.UID), int(c.Old.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
		}
		return setTime(at, temp, c.Old.Mtime)
	})
}

// file puts a file back, as another name of one that is there if it was that.
func (r *restorer) file(at int, name string, c *Change) error {
	return r.replace(at, name, c, func(temp string) error {
		if linked, err := r.hardLink(at, temp, c.Path); linked || err != nil {
			return err
		}
		return r.write(at, temp, c.Old)
	})
}

// hardLink links temp to the file that path was another name of, if that file is
// there as it was.
func (r *restorer) hardLink(at int, temp, path string) (done bool, err error) {
	leader, ok := r.leaders[path]
	if !ok {
		return false, nil
	}
	id, ok := r.made[leader]
	if is := r.now[leader]; !ok && is != nil && is.Kind == File && !r.changed[leader] && r.target[leader].Digest == is.Digest {
		id, ok = is.Identity, true
	}
	if !ok {
		return false, nil
	}
	dir, name := split(leader)
	from, err := walk(r.root, dir)
	if err != nil {
		return false, nil
	}
	defer unix.Close(from)
	if unix.Linkat(from, name, at, temp, 0) != nil {
		return false, nil
	}
	// What is linked is looked at, not what was there before.
	st, err := statAt(at, temp)
	if err != nil {
		return false, err
	}
	if is := identity(&st); is.Dev != id.Dev || is.Ino != id.Ino {
		return false, unix.Unlinkat(at, temp, 0)
	}
	return true, nil
}

// write writes the bytes of e, which are compared with their digest before the
// file has its name.
func (r *restorer) write(at int, temp string, e *Entry) error {
	from, err := r.store.open(e)
	if err != nil {
		return err
	}
	defer from.Close()
	fd, err := openAt(at, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), temp)
	defer to.Close()
	var in io.Reader = from
	out := &holes{to: to}
	if clone(to, from) == nil {
		in, out = to, &holes{}
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, out), &stoppable{ctx: r.ctx, in: in})
	if err = errors.Join(err, out.end()); err != nil {
		return err
	}
	if n != e.Size || Digest(sum.Sum(nil)) != e.Digest {
		return errors.New("the store has other bytes than it had (sb-run undo verify tells more)")
	}
	if err := setAll(fd, e); err != nil {
		return err
	}
	st, err := stat(fd)
	if err != nil {
		return err
	}
	r.made[e.Path] = identity(&st)
	return setTime(at, temp, e.Mtime)
}

// setAll gives an open file or directory all but its bytes and its time. The owner comes first,
// since to change it takes away permissions.
func setAll(fd int, e *Entry) error {
	st, err := stat(fd)
	if err != nil {
		return err
	}
	if st.Uid != e.UID || st.Gid != e.GID {
		if err := unix.Fchown(fd, int(e.UID), int(e.GID)); err != nil {
			return fmt.Errorf("its owner: %w", err)
		}
	}
	// An attribute of a file that cannot be written cannot be set.
	if err := setAttributes(fd, e); err != nil {
		return fmt.Errorf("its attributes: %w", err)
	}
	if err := unix.Fchmod(fd, e.Mode); err != nil {
		return fmt.Errorf("its permissions: %w", err)
	}
	return nil
}

func setAttributes(fd int, e *Entry) error {
	is, err := attributes(fd)
	if err != nil || slices.Equal(is, e.Attributes) {
		return err
	}
	for _, a := range is {
		if !slices.ContainsFunc(e.Attributes, func(b Attribute) bool { return a.Name == b.Name }) {
			if err := unix.Fremovexattr(fd, a.Name); err != nil {
				return err
			}
		}
	}
	for _, a := range e.Attributes {
		if err := unix.Fsetxattr(fd, a.Name, []byte(a.Value), 0); err != nil {
			return err
		}
	}
	return nil
}

// setTime sets when a name in a directory was changed last.
func setTime(at int, name string, t Time) error {
	ts := unix.Timespec{Sec: t.Sec, Nsec: t.Nsec}
	return unix.UtimesNanoAt(at, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
