package flatten

import (
	"errors"
	"fmt"
	"strings"

	"sb/sb-image/erofs"
)

// parent returns the directory that the last of names lies in. If a directory on
// the way is missing it is made, or nil is returned.
//
// A symbolic link on the way is followed, as when a layer writes lib/x over a
// base whose lib is a link to usr/lib. It never leads out of the image: "/" is
// the image's root, and ".." stops there.
func (m *Image) parent(names []string, create bool) (*erofs.Inode, error) {
	way := []*erofs.Inode{m.root} // from the root to where the walk stands
	rest := names[:len(names)-1]
	ofLink := 0 // how many names at the front of rest come from a link's target
	for links, steps := 0, 0; len(rest) > 0; steps++ {
		if steps > maxPath {
			return nil, errors.New("the way through its symbolic links is too long")
		}
		here, name := way[len(way)-1], rest[0]
		rest, ofLink = rest[1:], ofLink-1
		switch next := here.Children[name].Inode; {
		case name == "" || name == ".":
		case name == "..": // of a symbolic link's target alone
			way = way[:max(1, len(way)-1)]
		case next == nil && ofLink >= 0:
			return nil, fmt.Errorf("a symbolic link on the way leads to %q, which is not there", clip(name))
		case next == nil && !create:
			return nil, nil
		case next == nil:
			next = newDir()
			m.put(here, name, next)
			way = append(way, next)
		case next.IsDir():
			way = append(way, next)
		case next.Type() == erofs.TypeSymlink:
			if links++; links > maxLinks {
				return nil, errors.New("too many symbolic links on the way")
			}
			if strings.HasPrefix(next.Target, "/") {
				way = way[:1]
			}
			target := strings.Split(next.Target, "/")
			rest, ofLink = append(target, rest...), max(0, ofLink)+len(target)
		default:
			return nil, fmt.Errorf("%q on the way is no directory", clip(name))
		}
	}
	return way[len(way)-1], nil
}

// A name that begins with wh takes away what lower layers have under the rest
// of it; opaque takes away all that they have in its directory.
const (
	wh     = ".wh."
	opaque = ".wh..wh..opq"
)

// Directories in which aufs, an older kind of overlay, kept its own books, and
// which old builders left in layers.
func aufs(name string) bool {
	return name == ".wh..wh.aufs" || name == ".wh..wh.plnk" || name == ".wh..wh.orph"
}

// whiteout does what the entry asks for if it is one of these names.
func (m *Image) whiteout(names []string) (done bool, err error) {
	last := len(names) - 1
	for n, name := range names {
		if aufs(name) {
			return true, nil
		}
		if strings.HasPrefix(name, wh) && n < last {
			return false, fmt.Errorf("%q is no name of a directory", clip(name))
		}
	}
	hidden, ok := strings.CutPrefix(names[last], wh)
	if !ok {
		return false, nil
	}
	all := names[last] == opaque
	if !all && (hidden == "" || hidden == "." || hidden == ".." || strings.HasPrefix(hidden, wh)) {
		return false, errors.New("it takes nothing away that has a name")
	}
	dir, err := m.parent(names, false)
	if err != nil || dir == nil {
		return true, err
	}
	if all {
		m.pruneChildren(dir)
	} else if e, ok := dir.Children[hidden]; ok {
		m.prune(dir, hidden, e)
	}
	return true, nil
}

// pruneChildren prunes all in a directory. What comes into it later is this layer's, so
// that once is enough; a layer may ask a million times.
func (m *Image) pruneChildren(dir *erofs.Inode) {
	if m.pruned[dir] {
		return
	}
	m.pruned[dir] = true
	for name, e := range dir.Children {
		m.prune(dir, name, e)
	}
}

// prune takes away what lower layers have at name. What this layer put there
// already stays: the order of the entries in a layer says nothing.
func (m *Image) prune(dir *erofs.Inode, name string, e erofs.Entry) {
	if e.Inode.IsDir() {
		m.pruneChildren(e.Inode)
	}
	switch {
	case e.Tag == m.layer:
	case e.Inode.IsDir() && len(e.Inode.Children) > 0:
		fresh := newDir()
		fresh.Children = e.Inode.Children
		m.pruned[fresh] = true
		m.put(dir, name, fresh)
	default:
		delete(dir.Children, name)
	}
}
