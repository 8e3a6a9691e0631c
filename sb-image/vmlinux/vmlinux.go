// Package vmlinux finds the kernel that a machine can start at once inside the
// compressed images that distributions ship.
//
// On amd64 that is the ELF file with a PVH entry point: the hypervisor enters
// it in 32-bit mode, no firmware and no decompressor runs. On arm64 it is the
// plain Image, which begins with its own header.
package vmlinux

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"

	"sb/sb-image/decompress"

	"github.com/pierrec/lz4/v4"
)

// MaxSize bounds a kernel, packed or not, in bytes. Debian's largest is 70 MiB.
const MaxSize = 512 << 20

// Extract returns the kernel in image, which may be a bzImage (amd64), an EFI
// image that unpacks itself (arm64), a compressed Image, or what is wanted
// already. arch is amd64 or arm64; another architecture's kernel is an error.
func Extract(image []byte, arch string) ([]byte, error) {
	if len(image) > MaxSize {
		return nil, fmt.Errorf("the kernel has %d bytes, and %d is the limit", len(image), MaxSize)
	}
	payload, err := payloadOf(image)
	if err != nil {
		return nil, err
	}
	kernel, err := unpack(payload)
	if err != nil {
		return nil, fmt.Errorf("decompress the kernel: %w", err)
	}
	if err := check(kernel, arch); err != nil {
		return nil, err
	}
	return kernel, nil
}

var errNoKernel = errors.New("not a Linux kernel: neither a bzImage, nor an ELF file, nor an arm64 Image")

// The x86 boot protocol (Documentation/arch/x86/boot.rst), offsets from the
// start of the file: setup_sects 0x1f1, boot_flag 0x1fe, header 0x202, version
// 0x206, payload_offset 0x248, payload_length 0x24c. The payload lies behind the
// boot sector and setup_sects sectors of 512 bytes; it is known since version 2.08.
func payloadOf(image []byte) ([]byte, error) {
	le := binary.LittleEndian
	switch {
	case len(image) > 0x250 && string(image[0x202:0x206]) == "HdrS" && le.Uint16(image[0x1fe:]) == 0xaa55:
		if v := le.Uint16(image[0x206:]); v < 0x0208 {
			return nil, fmt.Errorf("the bzImage speaks boot protocol %d.%02d: its payload cannot be found before 2.08", v>>8, v&0xff)
		}
		sectors := uint64(image[0x1f1])
		if sectors == 0 {
			sectors = 4
		}
		start := (sectors+1)*512 + uint64(le.Uint32(image[0x248:]))
		return cut(image, start, uint64(le.Uint32(image[0x24c:])))
	case len(image) > 64 && string(image[4:8]) == "zimg":
		// An EFI image that decompresses itself, drivers/firmware/efi/libstub/zboot-header.S:
		// offset and length of the payload at 8 and 12.
		return cut(image, uint64(le.Uint32(image[8:])), uint64(le.Uint32(image[12:])))
	}
	return image, nil
}

func cut(image []byte, start, length uint64) ([]byte, error) {
	if start > uint64(len(image)) || length > uint64(len(image))-start || length < 8 {
		return nil, fmt.Errorf("the kernel's header points to %d bytes at %d, and the file has %d", length, start, len(image))
	}
	return image[start : start+length], nil
}

// unpack undoes the compression of a payload. In a bzImage all but gzip are
// followed by the size of the kernel, in four bytes that belong to no format
// (scripts/Makefile.lib, size_append); elsewhere they are not.
func unpack(payload []byte) ([]byte, error) {
	if bytes.HasPrefix(payload, lz4LegacyMagic) {
		return unpackLZ4(payload)
	}
	limit := decompress.Limit{Bytes: MaxSize, Ratio: 200, Free: 64 << 20}
	z, err := decompress.New(bytes.NewReader(payload), limit)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if z.Kind == "" {
		return payload, nil
	}
	var kernel bytes.Buffer
	if _, err := io.Copy(&kernel, z); err != nil && !isSize(payload[len(payload)-4:], kernel.Len()) {
		return nil, err
	}
	return kernel.Bytes(), nil
}

// isSize reports whether tail is the size of the kernel that came out before it.
func isSize(tail []byte, size int) bool {
	return size > 0 && len(tail) == 4 && uint64(binary.LittleEndian.Uint32(tail)) == uint64(size)
}

var lz4LegacyMagic = []byte{0x02, 0x21, 0x4c, 0x18}

// The legacy frame of lz4 (lz4_Frame_format.md): the magic, then blocks, each
// behind its compressed length, of 8 MiB when unpacked except for the last.
const lz4Block = 8 << 20

func unpackLZ4(payload []byte) ([]byte, error) {
	var kernel []byte
	block := make([]byte, lz4Block)
	rest := payload[len(lz4LegacyMagic):]
	for len(rest) > 0 && !isSize(rest, len(kernel)) {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, fmt.Errorf("lz4: %w", io.ErrUnexpectedEOF)
		}
		n := binary.LittleEndian.Uint32(rest)
		m, err := lz4.UncompressBlock(rest[4:4+n], block)
		if err != nil {
			return nil, err
		}
		kernel, rest = append(kernel, block[:m]...), rest[4+n:]
		if len(kernel) > MaxSize {
			return nil, fmt.Errorf("the kernel has more than %d bytes", MaxSize)
		}
	}
	return kernel, nil
}

// check says why kernel cannot be started, if it cannot.
func check(kernel []byte, arch string) error {
	const arm64Magic = 56 // "ARM\x64", Documentation/arch/arm64/booting.rst
	if len(kernel) > 64 && string(kernel[arm64Magic:arm64Magic+4]) == "ARM\x64" {
		if arch != "arm64" {
			return fmt.Errorf("the kernel is for arm64, not for %s", arch)
		}
		return nil
	}
	f, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return errNoKernel
	}
	switch {
	case f.Machine != elf.EM_X86_64:
		return fmt.Errorf("the kernel is for %v, not for %s", f.Machine, arch)
	case arch != "amd64":
		return fmt.Errorf("the kernel is for amd64, not for %s", arch)
	case !hasPVH(f):
		return errors.New("the kernel has no PVH entry point: it was built without CONFIG_PVH")
	}
	return nil
}

// hasPVH looks for the note that names the entry point: owner "Xen", type 18
// (XEN_ELFNOTE_PHYS32_ENTRY, include/xen/interface/elfnote.h).
func hasPVH(f *elf.File) bool {
	const physEntry = 18
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<20 {
			continue
		}
		note := make([]byte, p.Filesz)
		if _, err := p.ReadAt(note, 0); err != nil {
			continue
		}
		for len(note) >= 12 {
			name, desc, typ := f.ByteOrder.Uint32(note), f.ByteOrder.Uint32(note[4:]), f.ByteOrder.Uint32(note[8:])
			next := 12 + (uint64(name)+3)&^3 + (uint64(desc)+3)&^3
			if next > uint64(len(note)) {
				break
			}
			if typ == physEntry && name == 4 && string(note[12:16]) == "Xen\x00" {
				return true
			}
			note = note[next:]
		}
	}
	return false
}

var banner = regexp.MustCompile(`Linux version ([0-9][0-9A-Za-z.+~_-]{0,100}) \(`)

// Version finds the release of a kernel, as uname -r gives it, in the banner
// that every kernel prints when it starts; "" if there is none.
func Version(kernel []byte) string {
	if m := banner.FindSubmatch(kernel); m != nil {
		return string(m[1])
	}
	return ""
}
