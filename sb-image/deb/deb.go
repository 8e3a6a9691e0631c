// Package deb reads Debian packages (deb(5)): an ar archive that holds a
// compressed tar. Nothing is unpacked to disk here.
package deb

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"sb/sb-image/decompress"
)

// The ar format, as deb(5) has it: a magic line, then members that each begin
// with a header of sixty bytes and are padded to an even length.
const (
	arMagic   = "!<arch>\n"
	arHeader  = 60
	arMembers = 16 // a package has three, a signed one four
)

// limit bounds a package: the largest kernel of Debian's has 0.4 GiB of modules,
// with debugging symbols several times that.
var limit = decompress.Limit{Bytes: 8 << 30, Ratio: 200, Free: 64 << 20}

var errNoData = errors.New("not a Debian package: it has no data.tar")

// Magic reports whether head begins a Debian package.
func Magic(head []byte) bool { return bytes.HasPrefix(head, []byte(arMagic)) }

// Walk calls visit for every entry of the package's data archive. The reader it
// gets is the entry's content. The whole package is read, so that what is cut
// short is an error.
func Walk(r io.Reader, visit func(*tar.Header, io.Reader) error) error {
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != arMagic {
		return errors.New("not a Debian package: it does not begin with the magic of ar")
	}
	found := false
	for range arMembers {
		name, size, err := member(r)
		if err == io.EOF {
			if found {
				return nil
			}
			return errNoData
		}
		if err != nil {
			return err
		}
		body := &io.LimitedReader{R: r, N: size}
		if strings.HasPrefix(name, "data.tar") {
			found = true
			if err := walkTar(body, visit); err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
		}
		// What is left of the member, and the byte that makes its length even.
		if n, err := io.Copy(io.Discard, body); err != nil || body.N != 0 {
			return fmt.Errorf("read %s: %w after %d bytes", name, orUnexpected(err), n)
		}
		if size%2 == 1 {
			if _, err := io.CopyN(io.Discard, r, 1); err != nil && err != io.EOF {
				return err
			}
		}
	}
	return fmt.Errorf("not a Debian package: it has more than %d members", arMembers)
}

func member(r io.Reader) (name string, size int64, err error) {
	var h [arHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if err == io.EOF {
			return "", 0, err
		}
		return "", 0, fmt.Errorf("read a header of ar: %w", err)
	}
	name = strings.TrimSuffix(strings.TrimSpace(string(h[:16])), "/")
	size, err = strconv.ParseInt(strings.TrimSpace(string(h[48:58])), 10, 64)
	if err != nil || size < 0 || string(h[58:]) != "`\n" {
		return "", 0, fmt.Errorf("member %q of the package has a malformed header", name)
	}
	return name, size, nil
}

func walkTar(r io.Reader, visit func(*tar.Header, io.Reader) error) error {
	z, err := decompress.New(r, limit)
	if err != nil {
		return err
	}
	defer z.Close()
	tr := tar.NewReader(z)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, z)
			return err
		}
		if err != nil {
			return err
		}
		if err := visit(h, tr); err != nil {
			return err
		}
	}
}

func orUnexpected(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}
