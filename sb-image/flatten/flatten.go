// Package flatten joins the layers of a container image into one file system.
//
// A layer is a tar archive of what changed (OCI image specification, layer.md).
// Its names and links come from strangers. They are looked up in a tree in memory
// and never on this machine: no path is made from them, so there is none to
// escape by. What no honest layer has is an error all the same.
package flatten

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"

	"sb/sb-image/erofs"
)

// The bounds of an image. The largest of those in use, for machine learning,
// have a quarter of each.
const (
	MaxLayers  = 256
	maxEntries = 2 << 20   // in all layers
	maxBytes   = 64 << 30  // content of all files of all layers
	maxText    = 512 << 20 // names, link targets and attributes, which stay in memory
	maxPath    = 4096      // bytes in the name of an entry
	maxLinks   = 40        // symbolic links on the way to one file, as in Linux
	maxDropped = 20        // names of attributes that are left out

	// What holes of sparse files add: for each byte of the archives, once more than
	// freeBytes came out. It is what decompressing may add.
	maxRatio  = 200
	freeBytes = 1 << 30
)

// Image is a file system in the making.
type Image struct {
	w     *erofs.Writer
	root  *erofs.Inode
	layer int

	entries, bytes, text int64
	in, out              int64                 // of the archives, of their files' content
	pruned               map[*erofs.Inode]bool // directories that have only this layer's, with all below

	// Dropped counts the extended attributes that were left out, by name: those
	// that erofs has no place for, and overlayfs's own, which would tell the
	// sandbox's overlay to hide or redirect files. All beyond the first few names
	// are one, Others.
	Dropped map[string]int

	// Copy, if set, is asked for each regular file of a layer, by its name there;
	// what it returns gets the file's content as well.
	Copy func(name string) io.Writer

	// NeedEnd refuses an archive without the blocks that mark its end. Some layers
	// have none; where nobody knows a digest, nothing else shows that one was cut short.
	NeedEnd bool
}

// Others stands for the names of dropped attributes that are not told apart.
const Others = "of other names"

// New returns an empty image that w writes.
func New(w *erofs.Writer) *Image {
	return &Image{w: w, root: newDir(), Dropped: map[string]int{}}
}

// newDir is a directory that no entry describes.
func newDir() *erofs.Inode { return &erofs.Inode{Mode: erofs.TypeDir | 0o755} }

// Layer lays the tar archive r, which is not compressed, over what is there,
// and reads r to its end.
func (m *Image) Layer(r io.Reader) error {
	if m.layer++; m.layer > MaxLayers {
		return fmt.Errorf("the image has more than %d layers", MaxLayers)
	}
	m.pruned = map[*erofs.Inode]bool{}
	ended := &ending{r: r, n: &m.in}
	tr := tar.NewReader(ended)
	for {
		h, err := tr.Next()
		if err == io.EOF && m.NeedEnd && ended.eof {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			return Drain(r)
		}
		if err != nil {
			return fmt.Errorf("read its tar archive: %w", err)
		}
		if err := m.entry(h, tr); err != nil {
			return fmt.Errorf("entry %q: %w", clip(h.Name), err)
		}
	}
}

// MaxBehind is how much may follow the end of an archive, in bytes: programs fill its
// last block up, which is 10 KiB by default and rarely more than 1 MiB.
const MaxBehind = 16 << 20

// Drain reads what follows the end of an archive, and refuses what is no filling.
func Drain(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, MaxBehind+1))
	if err == nil && n > MaxBehind {
		err = fmt.Errorf("more than %d MiB follow the end of its tar archive", MaxBehind>>20)
	}
	return err
}

// ending notes that r came to its end: the reader of an archive that has its own
// end stops before.
type ending struct {
	r   io.Reader
	n   *int64 // counts what was read
	eof bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	*e.n += int64(n)
	e.eof = e.eof || err == io.EOF && n == 0
	return n, err
}

// Finish completes the file system.
func (m *Image) Finish() error { return m.w.Finish(m.root) }

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

func (m *Image) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := m.count(h); err != nil {
		return err
	}
	names, err := components(h.Name)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return m.setRoot(h)
	}
	if done, err := m.whiteout(names); done || err != nil {
		return err
	}
	parent, err := m.parent(names, true)
	if err != nil {
		return err
	}
	return m.add(parent, names[len(names)-1], h, content)
}

func (m *Image) count(h *tar.Header) error {
	m.entries++
	if h.Size < 0 || h.Size > maxBytes-m.bytes { // a sum could overflow
		return fmt.Errorf("the image has more than %d bytes", int64(maxBytes))
	}
	m.bytes += h.Size
	m.text += int64(len(h.Name) + len(h.Linkname))
	for name, value := range h.PAXRecords {
		m.text += int64(len(name) + len(value))
	}
	switch {
	case m.entries > maxEntries:
		return fmt.Errorf("the image has more than %d entries", maxEntries)
	case m.text > maxText:
		return fmt.Errorf("the image has more than %d bytes of names and attributes", maxText)
	}
	return nil
}

// components splits the name of an entry or the target of a hard link. A
// leading slash means the image's root, as in every other program.
func components(name string) (names []string, err error) {
	if len(name) > maxPath {
		return nil, fmt.Errorf("the name has %d bytes, and %d is the limit", len(name), maxPath)
	}
	if strings.ContainsRune(name, 0) {
		return nil, errors.New("the name has a NUL")
	}
	for n := range strings.SplitSeq(name, "/") {
		switch {
		case n == "" || n == ".":
		case n == "..":
			return nil, fmt.Errorf("%q has a .. in it", clip(name))
		case len(n) > erofs.MaxName:
			return nil, fmt.Errorf("the name %q has %d bytes, and %d is the limit", clip(n), len(n), erofs.MaxName)
		default:
			names = append(names, n)
		}
	}
	return names, nil
}

func (m *Image) setRoot(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return errors.New("the root of an image is a directory")
	}
	return m.describe(m.root, h)
}

// add makes the entry called name in parent.
func (m *Image) add(parent *erofs.Inode, name string, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeLink {
		return m.link(parent, name, h.Linkname)
	}
	i := &erofs.Inode{Mode: typeOf(h.Typeflag)}
	if i.Mode == 0 {
		return fmt.Errorf("it is of type %q, which no file system has", string(h.Typeflag))
	}
	if old := parent.Children[name].Inode; old != nil && old.IsDir() && i.IsDir() {
		i = old // what is in it stays
	}
	if err := m.describe(i, h); err != nil {
		return err
	}
	if i.Type() == erofs.TypeFile {
		if m.Copy != nil {
			if to := m.Copy(h.Name); to != nil {
				content = io.TeeReader(content, to)
			}
		}
		if err := m.w.SetContent(i, &bounded{m, content}, h.Size); err != nil {
			return err
		}
	}
	m.put(parent, name, i)
	return nil
}

// bounded is the content of a file. It may have holes, of which an archive of a few
// bytes has any number.
type bounded struct {
	m *Image
	r io.Reader
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	m := b.m
	if m.out += int64(n); m.out > freeBytes && m.out/maxRatio > m.in {
		return 0, fmt.Errorf("the holes of its sparse files are far larger than they should be: %d bytes out of %d", m.out, m.in)
	}
	return n, err
}

func (m *Image) put(parent *erofs.Inode, name string, i *erofs.Inode) {
	if parent.Children == nil {
		parent.Children = map[string]erofs.Entry{}
	}
	parent.Children[name] = erofs.Entry{Inode: i, Tag: m.layer}
}

// typeOf returns the type bits for a type of tar's, or 0.
func typeOf(flag byte) uint32 {
	switch flag {
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		return erofs.TypeFile
	case tar.TypeDir:
		return erofs.TypeDir
	case tar.TypeSymlink:
		return erofs.TypeSymlink
	case tar.TypeChar:
		return erofs.TypeChar
	case tar.TypeBlock:
		return erofs.TypeBlock
	case tar.TypeFifo:
		return erofs.TypeFIFO
	}
	return 0
}

// describe gives i all that the header says of it but its content.
func (m *Image) describe(i *erofs.Inode, h *tar.Header) error {
	const id = 1<<32 - 1
	if h.Uid < 0 || int64(h.Uid) >= id || h.Gid < 0 || int64(h.Gid) >= id {
		return fmt.Errorf("no user or group has the number %d:%d", h.Uid, h.Gid)
	}
	i.Mode = i.Type() | uint32(h.Mode&0o7777)
	i.UID, i.GID = uint32(h.Uid), uint32(h.Gid)
	i.Mtime, i.MtimeNsec = h.ModTime.Unix(), uint32(h.ModTime.Nanosecond())
	switch i.Type() {
	case erofs.TypeSymlink:
		if n := len(h.Linkname); n == 0 || n > erofs.MaxTarget {
			return fmt.Errorf("the target of a symbolic link has 1 to %d bytes, not %d", erofs.MaxTarget, n)
		}
		i.Target = h.Linkname
		i.Mode = erofs.TypeSymlink | 0o777
	case erofs.TypeChar, erofs.TypeBlock:
		var err error
		if i.Device, err = erofs.Device(h.Devmajor, h.Devminor); err != nil {
			return err
		}
	}
	return i.SetXattrs(m.xattrs(h))
}

// xattrs returns the attributes of an entry, as GNU tar and all image builders write them.
func (m *Image) xattrs(h *tar.Header) (list []erofs.Xattr) {
	for record, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(record, "SCHILY.xattr.")
		if !ok {
			continue
		}
		x := erofs.Xattr{Name: name, Value: value}
		overlay := strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
		if overlay || new(erofs.Inode).SetXattrs([]erofs.Xattr{x}) != nil {
			m.drop(clip(name))
			continue
		}
		list = append(list, x)
	}
	return list
}

func (m *Image) drop(name string) {
	if _, ok := m.Dropped[name]; !ok && len(m.Dropped) >= maxDropped {
		name = Others
	}
	m.Dropped[name]++
}

// link makes name another name of the file that target leads to.
func (m *Image) link(parent *erofs.Inode, name, target string) error {
	names, err := components(target)
	if err != nil {
		return fmt.Errorf("hard link: %w", err)
	}
	if len(names) == 0 {
		return fmt.Errorf("hard link to %q, a directory", target)
	}
	dir, err := m.parent(names, false)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", clip(target), err)
	}
	var i *erofs.Inode
	if dir != nil {
		i = dir.Children[names[len(names)-1]].Inode
	}
	switch {
	case i == nil:
		return fmt.Errorf("hard link to %q, which is not there", clip(target))
	case i.IsDir():
		return fmt.Errorf("hard link to %q, a directory", clip(target))
	}
	m.put(parent, name, i)
	return nil
}
