// Package decompress undoes the compression of layers, packages and modules,
// which it knows by their first bytes and never by what somebody says of them.
//
// The bytes are not trusted: memory is bounded (a window of at most 128 MiB),
// and so is what may come out for what went in.
package decompress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// ErrTooLarge is what a Reader ends with when more comes out than a Limit lets.
var ErrTooLarge = errors.New("decompresses to far more than it should")

const (
	maxZstdWindow = 128 << 20 // what `zstd --ultra -22` uses, and no more
	maxXzDict     = 64 << 20  // what `xz -9` uses
)

// Limit bounds what comes out of a stream.
type Limit struct {
	Bytes int64 // in all
	Ratio int64 // for each byte read, once more than Free came out
	Free  int64 // so much is always let through: small things compress well
}

// Reader is a decompressed stream. The caller closes it; the stream below
// stays open.
type Reader struct {
	Kind  string // "gzip", "zstd", "xz" or "" for bytes that are not compressed
	r     io.Reader
	close func()
	in    *counter
	out   int64
	limit Limit
}

var magics = []struct {
	kind  string
	magic []byte
}{
	{"gzip", []byte{0x1f, 0x8b}},                     // RFC 1952, 2.3.1
	{"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd}},         // RFC 8878, 3.1.1
	{"xz", []byte{0xfd, '7', 'z', 'X', 'Z', 0}},      // the .xz file format, 2.1.1.1
	{"bzip2", []byte("BZh")},                         // named only to be refused by name
	{"lz4", []byte{0x04, 0x22, 0x4d, 0x18}},          // the same
	{"encrypted with age", []byte("age-encryption")}, // the same
}

// New returns the decompressed form of r. An empty stream is not compressed.
func New(r io.Reader, limit Limit) (*Reader, error) {
	in := &counter{r: r}
	buffered := bufio.NewReaderSize(in, 64<<10)
	head, err := buffered.Peek(16)
	if err != nil && err != io.EOF {
		return nil, err
	}
	err = nil
	z := &Reader{in: in, limit: limit, close: func() {}}
	for _, m := range magics {
		if bytes.HasPrefix(head, m.magic) {
			z.Kind = m.kind
		}
	}
	switch z.Kind {
	case "":
		z.r = buffered
	case "gzip":
		z.r, err = gzip.NewReader(buffered)
	case "zstd":
		var d *zstd.Decoder
		d, err = zstd.NewReader(buffered, zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
		if err == nil {
			z.r, z.close = d, d.Close
		}
	case "xz":
		z.r, err = xz.NewReader(buffered, maxXzDict)
	default:
		err = fmt.Errorf("the stream is %s: gzip, zstd and xz are known", z.Kind)
	}
	if err == io.EOF { // within the stream's own header
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return z, nil
}

func (z *Reader) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	z.out += int64(n)
	if z.out > z.limit.Bytes {
		return 0, fmt.Errorf("%w: %d bytes is the limit", ErrTooLarge, z.limit.Bytes)
	}
	if z.out > z.limit.Free && z.out/z.limit.Ratio > z.in.n {
		return 0, fmt.Errorf("%w: %d bytes out of %d, and %d times is the limit", ErrTooLarge, z.out, z.in.n, z.limit.Ratio)
	}
	if err != nil && err != io.EOF && z.Kind != "" {
		err = fmt.Errorf("%s: %w", z.Kind, err)
	}
	return n, err
}

// Close frees what the decoder holds.
func (z *Reader) Close() error {
	z.close()
	return nil
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
