package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"sb/sb-image/decompress"
)

// archive is a tar file whose members are read where they lie. One that is
// compressed is decompressed first, into the store.
type archive struct {
	file     *os.File
	expanded *temp // the decompressed form, if it was compressed
	members  map[string]member
}

type member struct {
	at, size int64
	link     string // the member that a link leads to
}

// The bounds of what stays in memory of an archive.
const (
	maxMembers     = 100_000
	maxMemberNames = 64 << 20 // bytes of names and of links' targets
)

func openArchive(name string) (*archive, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	a := &archive{file: f, members: map[string]member{}}
	if err := a.expand(); err != nil {
		a.Close()
		return nil, err
	}
	if err := a.index(); err != nil {
		a.Close()
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return a, nil
}

// expand puts the decompressed form in the place of a compressed file.
func (a *archive) expand() error {
	z, err := decompress.New(a.file, limit())
	if err != nil {
		return err
	}
	defer z.Close()
	if z.Kind == "" {
		_, err := a.file.Seek(0, io.SeekStart)
		return err
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	if a.expanded, err = s.temp("archive"); err != nil {
		return err
	}
	if _, err := io.Copy(a.expanded, z); err != nil {
		return err
	}
	a.file.Close()
	a.file = a.expanded.File
	_, err = a.file.Seek(0, io.SeekStart)
	return err
}

// Close closes the file, and removes what was decompressed.
func (a *archive) Close() error {
	if a.expanded != nil {
		a.expanded.discard()
	}
	return a.file.Close()
}

// index notes where each member lies. The reader takes no byte ahead of what
// it returns, so the file stands at the content of each.
func (a *archive) index() error {
	r := tar.NewReader(a.file)
	names := 0
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean("/" + h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			a.members[name] = member{at: at, size: h.Size}
		case tar.TypeSymlink:
			a.members[name] = member{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			a.members[name] = member{link: path.Clean("/" + h.Linkname)}
		}
		if names += len(h.Name) + len(h.Linkname); names > maxMemberNames {
			return fmt.Errorf("it has more than %d bytes of names", maxMemberNames)
		}
		if len(a.members) > maxMembers {
			return fmt.Errorf("it has more than %d members", maxMembers)
		}
	}
}

// open opens a member. Old archives of Docker's name a layer that two images
// share by a link.
func (a *archive) open(name string) (io.ReadCloser, error) {
	m, ok := a.members[path.Clean("/"+name)]
	for links := 0; ok && m.link != "" && links < 8; links++ {
		m, ok = a.members[m.link]
	}
	if !ok || m.link != "" {
		return nil, fmt.Errorf("it has no member %s: %w", name, fs.ErrNotExist)
	}
	return io.NopCloser(io.NewSectionReader(a.file, m.at, m.size)), nil
}
