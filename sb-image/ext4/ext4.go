// Package ext4 makes empty formatted disks, in a few milliseconds and without a
// formatting program on the user's machine.
//
// It ships the parts of ready ones that are not zero, for sizes that double.
// A disk of a size between two of them begins with the smaller file system. The
// machine makes it as large as its disk, after it has mounted it with the option
// noinit_itable (or the new part is filled with zeros in the background):
//
//	blocks := size of the device / 4096                     // BLKGETSIZE64
//	if blocks > s_blocks_count {                            // of the super block, at 1024 on the device:
//	                                                        // low half at 4, high half at 336 (0x150)
//		ioctl(open("/mountpoint"), 0x40086610, &blocks) // EXT4_IOC_RESIZE_FS, a pointer to 64 bits
//	}
//
// which needs CAP_SYS_RESOURCE. What is shipped needs no such option: its inode
// tables are known to be zero, since they are holes.
package ext4

import (
	"embed"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// The file systems have a journal, for machines get killed, and 4096-byte
// blocks, and reserve nothing for root. ext4_test.go makes these files with
// mke2fs:
//
//	go test ./ext4 -update
//
//go:embed *.ext4.zst
var shipped embed.FS

// The smallest and the largest disk, in bytes.
const (
	Min = 1 << 30
	Max = 1 << 40
)

// sizes returns what is shipped: size in bytes to name.
func sizes() (map[int64]string, []int64, error) {
	files, err := shipped.ReadDir(".")
	names, sorted := map[int64]string{}, []int64(nil)
	for _, f := range files {
		gib, err := strconv.ParseInt(strings.TrimSuffix(f.Name(), "g.ext4.zst"), 10, 64)
		if err != nil {
			return nil, nil, err
		}
		names[gib<<30] = f.Name()
		sorted = append(sorted, gib<<30)
	}
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] > sorted[j] })
	return names, sorted, err
}

// Make creates file, which must not exist, as a disk of size bytes, of which
// it takes less than a megabyte until somebody writes to it. It is not synced:
// a disk that is lost in a crash of the host is lost with its machine.
func Make(file string, size int64) (err error) {
	if size < Min || size > Max || size%(1<<20) != 0 {
		return fmt.Errorf("a disk has %d to %d MiB, in whole ones, not %d bytes", Min>>20, Max>>20, size)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			os.Remove(file)
		}
	}()
	if err := f.Truncate(size); err != nil {
		return err
	}
	names, sorted, err := sizes()
	if err != nil {
		return err
	}
	for _, s := range sorted {
		if s <= size {
			return unpack(f, names[s])
		}
	}
	return fmt.Errorf("no file system of %d bytes or less is shipped", size)
}

// A shipped file is compressed with zstd and holds records: where, how many
// bytes (both 64 bits, little endian), and the bytes.
func unpack(to io.WriterAt, name string) error {
	f, err := shipped.Open(path.Clean(name))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	var head [16]byte
	buf := make([]byte, 1<<20)
	for {
		if _, err := io.ReadFull(z, head[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
		at, n := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
		if n > uint64(len(buf)) {
			return fmt.Errorf("unpack %s: a record of %d bytes", name, n)
		}
		if _, err := io.ReadFull(z, buf[:n]); err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
		if _, err := to.WriteAt(buf[:n], int64(at)); err != nil {
			return err
		}
	}
}
