package template

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// blockSize is how much of a file is looked at at a time, pageSize what a file
// system keeps or leaves out.
const blockSize, pageSize = 64 << 10, 4 << 10

var zeros [blockSize]byte

// blocks calls f with each block of the file that is not all zeros. Holes are
// not read, so that the cost is that of what is there.
func blocks(file *os.File, f func(at int64, b []byte) error) error {
	st, err := file.Stat()
	if err != nil {
		return err
	}
	buf := make([]byte, blockSize)
	for at := int64(0); at < st.Size(); {
		data, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole follows
		}
		if err == nil {
			at = max(at, data) &^ (blockSize - 1)
		} else if !errors.Is(err, unix.EINVAL) { // EINVAL: this file system knows no holes
			return err
		}
		n, err := file.ReadAt(buf, at)
		if err != nil && err != io.EOF {
			return err
		}
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if err := f(at, buf[:n]); err != nil {
				return err
			}
		}
		at += blockSize
	}
	return nil
}

// measure reads a file and returns its size and digest: the SHA-256 of the blocks
// that are not all zeros, each behind its place. How the file lies on the disk does
// not matter.
func measure(f *os.File) (part, error) {
	st, err := f.Stat()
	if err != nil {
		return part{}, err
	}
	h := sha256.New()
	err = blocks(f, func(at int64, b []byte) error {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
		h.Write(b)
		return nil
	})
	return part{st.Size(), hex.EncodeToString(h.Sum(nil))}, err
}

// Digest is the digest of a file's content and size, for an Input.
func Digest(f *os.File) (string, error) {
	p, err := measure(f)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(p.Size))) + "-" + p.SHA256, nil
}

// Copy makes to, which is emptied first, as from is, with its holes.
func Copy(to, from *os.File) error {
	st, err := from.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(to.Truncate(0), to.Truncate(st.Size())); err != nil {
		return err
	}
	return blocks(from, func(at int64, b []byte) error {
		for len(b) > 0 {
			page := b[:min(pageSize, len(b))]
			if !bytes.Equal(page, zeros[:len(page)]) {
				if _, err := to.WriteAt(page, at); err != nil {
					return err
				}
			}
			at, b = at+int64(len(page)), b[len(page):]
		}
		return nil
	})
}
