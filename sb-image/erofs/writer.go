package erofs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

const (
	blockSize = 4096
	blockBits = 12
	inodeSize = 64 // the extended form: 32-bit owners, 64-bit times and sizes
	nidSize   = 32

	// maxInline is how much of a file's last block is put behind its inode.
	// It saves the rest of the block; of longer ends it would save little, and
	// leave holes between the inodes, none of which may cross a block.
	maxInline = 2048
)

// Writer makes one image. Its first error stays.
type Writer struct {
	image *os.File
	out   *bufio.Writer // at the end of image
	block uint32        // where out stands
	spool *os.File      // ends of files that go behind their inodes
	ends  *bufio.Writer
	aside int64 // bytes in spool
	files []*Inode
	buf   []byte
	err   error
}

// NewWriter returns a Writer that fills image from its start, and uses spool for
// some of the content meanwhile. Both are empty, and remain the caller's.
func NewWriter(image, spool *os.File) *Writer {
	w := &Writer{image: image, spool: spool, buf: make([]byte, 64<<10)}
	w.out, w.ends = bufio.NewWriterSize(image, 1<<20), bufio.NewWriterSize(spool, 1<<20)
	w.write(make([]byte, blockSize)) // the super block comes last
	w.block = 1
	return w
}

// SetContent reads exactly size bytes from r and makes them the content of the
// file i, which has its attributes already.
func (w *Writer) SetContent(i *Inode, r io.Reader, size int64) error {
	if w.err != nil || size == 0 {
		i.size = 0
		return w.err
	}
	tail := size % blockSize
	i.inline = tail > 0 && tail <= maxInline && int64(inodeSize+i.xattrSize())+tail <= blockSize
	if !i.inline {
		tail = 0
	}
	i.size, i.block, i.spooled = size, w.block, w.aside
	w.files = append(w.files, i)
	if err := w.copy(w.out, r, size-tail); err != nil {
		return err
	}
	if pad := -(size - tail) & (blockSize - 1); pad > 0 {
		w.write(make([]byte, pad))
	}
	w.advance(size - tail)
	w.aside += tail
	return w.copy(w.ends, r, tail)
}

// copy moves n bytes. An error of r is the caller's to judge, but the image is
// lost with either.
func (w *Writer) copy(out io.Writer, r io.Reader, n int64) error {
	if w.err == nil && n > 0 {
		var done int64
		done, w.err = io.CopyBuffer(out, io.LimitReader(r, n), w.buf)
		if w.err == nil && done < n {
			w.err = io.ErrUnexpectedEOF
		}
	}
	return w.err
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

// advance counts the blocks that n bytes take.
func (w *Writer) advance(n int64) {
	blocks := (n + blockSize - 1) / blockSize
	if blocks > int64(^uint32(0)-w.block) {
		w.err = errors.New("the image has more than 2^32 blocks")
		return
	}
	w.block += uint32(blocks)
}

// Finish writes the tree under root and completes the image. The tree is not to be used again.
func (w *Writer) Finish(root *Inode) error {
	if w.err == nil && !root.IsDir() {
		w.err = errors.New("the root is no directory")
	}
	if w.err == nil {
		w.err = w.ends.Flush()
	}
	var t tree
	if w.err == nil {
		w.err = t.plan(root)
	}
	if w.err != nil {
		return w.err
	}
	w.writeDirs(&t)
	meta := w.block
	w.writeInodes(&t)
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if w.err == nil {
		_, w.err = w.image.WriteAt(superBlock(meta, w.block, root.nid, uint64(len(t.inodes))), 0)
	}
	if w.err == nil {
		w.err = w.release()
	}
	return w.err
}

// release gives back the blocks of files that are no longer in the tree.
func (w *Writer) release() error {
	for _, i := range w.files {
		n := (i.size + blockSize - 1) &^ (blockSize - 1)
		if i.inline {
			n = i.size &^ (blockSize - 1)
		}
		if i.links > 0 || n == 0 {
			continue
		}
		if err := punch(w.image, int64(i.block)*blockSize, n); err != nil {
			return fmt.Errorf("give back the blocks of a replaced file: %w", err)
		}
	}
	return nil
}

// superBlock returns the first block. The super block lies at 1024
// (struct erofs_super_block).
func superBlock(meta, blocks uint32, root, inodes uint64) []byte {
	const (
		offset         = 1024
		magic          = 0xe0f5e1e2
		compatChecksum = 1
		compatMtime    = 2
	)
	b := make([]byte, blockSize)
	sb, le := b[offset:], binary.LittleEndian
	le.PutUint32(sb[0:], magic)
	le.PutUint32(sb[8:], compatChecksum|compatMtime)
	sb[12] = blockBits
	le.PutUint16(sb[14:], uint16(root))
	le.PutUint64(sb[16:], inodes)
	le.PutUint32(sb[36:], blocks)
	le.PutUint32(sb[40:], meta)
	// Over the rest of the block, without the inversion at the end (erofs_superblock_csum_verify).
	le.PutUint32(sb[4:], ^crc32.Checksum(sb, crc32.MakeTable(crc32.Castagnoli)))
	return b
}
