package erofs

import (
	"encoding/binary"
	"fmt"
	"io"
	"sort"
)

// tree is the finished tree: every inode once, directories before what is in
// them, each with its place.
type tree struct {
	inodes []*Inode
	parent map[*Inode]*Inode // of directories
	end    int64             // of the last inode, from the start of the inodes' area
}

// plan numbers the inodes. Number 0 stays free: a directory entry with it looks
// removed to the C library.
func (t *tree) plan(root *Inode) error {
	t.parent = map[*Inode]*Inode{root: root}
	t.end = nidSize
	root.links = 2
	return t.add(root)
}

func (t *tree) add(i *Inode) error {
	t.place(i)
	if !i.IsDir() {
		return nil
	}
	for _, name := range i.names {
		if name == "." || name == ".." {
			continue
		}
		child := i.Children[name].Inode
		switch {
		case len(name) == 0 || len(name) > MaxName:
			return fmt.Errorf("a name of %d bytes: the format has 1 to %d", len(name), MaxName)
		case child.IsDir() && t.parent[child] != nil:
			return fmt.Errorf("directory %q is in two places", name)
		case child.IsDir():
			i.links++
			child.links = 2
			t.parent[child] = i
		default:
			if child.links++; child.links > 1 {
				continue
			}
		}
		if err := t.add(child); err != nil {
			return err
		}
	}
	return nil
}

// place gives i the next free place. What lies behind an inode must end in the
// same block; attributes alone may go on in the next.
func (t *tree) place(i *Inode) {
	switch i.Type() {
	case TypeDir:
		i.names = append(make([]string, 0, len(i.Children)+2), ".", "..")
		for name := range i.Children {
			i.names = append(i.names, name)
		}
		sort.Strings(i.names)
		i.size = dirSize(i.names)
	case TypeSymlink:
		i.size = int64(len(i.Target))
	}
	if i.Type() != TypeFile {
		i.inline = i.size%blockSize > 0 && i.behind() <= blockSize
	}
	whole := int64(inodeSize)
	if i.inline {
		whole = i.behind()
	}
	if t.end%blockSize+whole > blockSize {
		t.end += blockSize - t.end%blockSize
	}
	i.nid = uint64(t.end / nidSize)
	t.end += inodeSize + int64(i.xattrSize())
	if i.inline {
		t.end += i.size % blockSize
	}
	t.end = (t.end + nidSize - 1) &^ (nidSize - 1)
	t.inodes = append(t.inodes, i)
}

// behind is the length of the inode with all that would lie behind it.
func (i *Inode) behind() int64 { return inodeSize + int64(i.xattrSize()) + i.size%blockSize }

const direntSize = 12

// dirBlocks cuts sorted names into the blocks of a directory: entries first,
// then the names they point to.
func dirBlocks(names []string, visit func(block []string, used int)) {
	start, used := 0, 0
	for n, name := range names {
		if used+direntSize+len(name) > blockSize {
			visit(names[start:n], used)
			start, used = n, 0
		}
		used += direntSize + len(name)
	}
	visit(names[start:], used)
}

// dirSize is the length of a directory: all blocks but the last are whole.
func dirSize(names []string) (size int64) {
	dirBlocks(names, func(_ []string, used int) {
		size = (size+blockSize-1)&^(blockSize-1) + int64(used)
	})
	return size
}

// fileType returns the number that a directory entry has for the type of i
// (include/linux/fs_types.h).
func (i *Inode) fileType() byte {
	switch i.Type() {
	case TypeFile:
		return 1
	case TypeDir:
		return 2
	case TypeChar:
		return 3
	case TypeBlock:
		return 4
	case TypeFIFO:
		return 5
	case TypeSocket:
		return 6
	case TypeSymlink:
		return 7
	}
	return 0
}

// dirBlock encodes one block of the directory i, to the end of its last name.
func (t *tree) dirBlock(i *Inode, names []string) []byte {
	le := binary.LittleEndian
	at := direntSize * len(names)
	b := make([]byte, 0, blockSize)
	for _, name := range names {
		child := i.Children[name].Inode
		switch name {
		case ".":
			child = i
		case "..":
			child = t.parent[i]
		}
		b = le.AppendUint64(b, child.nid)
		b = le.AppendUint16(b, uint16(at))
		b = append(b, child.fileType(), 0)
		at += len(name)
	}
	for _, name := range names {
		b = append(b, name...)
	}
	return b
}

// writeDirs writes the blocks of directories and symbolic links that do not
// go behind their inodes.
func (w *Writer) writeDirs(t *tree) {
	for _, i := range t.inodes {
		if i.Type() == TypeFile || i.size == 0 || i.inline && i.size < blockSize {
			continue
		}
		i.block = w.block
		var content []byte
		if i.IsDir() {
			dirBlocks(i.names, func(names []string, _ int) {
				content = append(padded(content), t.dirBlock(i, names)...)
			})
		} else {
			content = []byte(i.Target)
		}
		if i.inline {
			content = content[:i.size&^(blockSize-1)]
		}
		w.write(padded(content))
		w.advance(int64(len(content)))
	}
}

func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&(blockSize-1))...) }

// writeInodes writes the inodes with what lies behind them.
func (w *Writer) writeInodes(t *tree) {
	var at int64
	for _, i := range t.inodes {
		start := int64(i.nid) * nidSize
		b := i.append(make([]byte, start-at, start-at+blockSize))
		if i.inline {
			b = w.appendInline(b, t, i)
		}
		at += int64(len(b))
		w.write(b)
	}
	w.write(make([]byte, -at&(blockSize-1)))
	w.advance(at)
}

func (w *Writer) appendInline(b []byte, t *tree, i *Inode) []byte {
	switch i.Type() {
	case TypeDir:
		var last []byte
		dirBlocks(i.names, func(names []string, _ int) { last = t.dirBlock(i, names) })
		return append(b, last...)
	case TypeSymlink:
		return append(b, i.Target...)
	}
	end := make([]byte, i.size%blockSize)
	if w.err == nil {
		_, w.err = io.ReadFull(io.NewSectionReader(w.spool, i.spooled, int64(len(end))), end)
	}
	return append(b, end...)
}

// append encodes struct erofs_inode_extended and the attributes.
func (i *Inode) append(b []byte) []byte {
	const (
		extended   = 1
		flatPlain  = 0 << 1
		flatInline = 2 << 1
	)
	le := binary.LittleEndian
	format := uint16(extended | flatPlain)
	if i.inline {
		format = extended | flatInline
	}
	xattrs := uint16(0)
	if n := i.xattrSize(); n > 0 {
		xattrs = uint16((n-12)/4 + 1)
	}
	place := i.block
	if t := i.Type(); t == TypeChar || t == TypeBlock {
		place = i.Device
	}
	b = le.AppendUint16(b, format)
	b = le.AppendUint16(b, xattrs)
	b = le.AppendUint16(b, uint16(i.Mode))
	b = le.AppendUint16(b, 0)
	b = le.AppendUint64(b, uint64(i.size))
	b = le.AppendUint32(b, place)
	b = le.AppendUint32(b, uint32(i.nid)) // for 32-bit stat; the kernel's own numbers are the places
	b = le.AppendUint32(b, i.UID)
	b = le.AppendUint32(b, i.GID)
	b = le.AppendUint64(b, uint64(i.Mtime))
	b = le.AppendUint32(b, i.MtimeNsec)
	b = le.AppendUint32(b, i.links)
	b = append(b, make([]byte, 16)...)
	return i.appendXattrs(b)
}
