// Package testelf makes small kernels and modules for tests: files that have
// the structure of real ones and no code.
package testelf

import (
	"bytes"
	"encoding/binary"
	"strings"
)

var le = binary.LittleEndian

const (
	headerSize  = 64 // of an ELF file
	programSize = 56
	sectionSize = 64
)

// header is that of a 64-bit little-endian file for a machine (EM_X86_64 is 62).
func header(typ, machine uint16) []byte {
	b := make([]byte, headerSize)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], typ)
	le.PutUint16(b[18:], machine)
	le.PutUint32(b[20:], 1)
	le.PutUint16(b[52:], headerSize)
	return b
}

// Kernel is a vmlinux of that release for a machine, with a PVH entry or without.
// fill bytes of it compress badly.
func Kernel(release string, machine uint16, pvh bool, fill int) []byte {
	b := header(2, machine)
	note := le.AppendUint32(nil, 4)
	note = le.AppendUint32(note, 8)
	note = le.AppendUint32(note, 18)
	note = append(note, "Xen\x00\x00\x00\x00\x01\x00\x00\x00\x00"...)
	if !pvh {
		note[8] = 17
	}
	le.PutUint64(b[32:], headerSize)
	le.PutUint16(b[54:], programSize)
	le.PutUint16(b[56:], 1)
	p := make([]byte, programSize)
	le.PutUint32(p, 4) // PT_NOTE
	le.PutUint64(p[8:], headerSize+programSize)
	le.PutUint64(p[32:], uint64(len(note)))
	b = append(append(b, p...), note...)
	b = append(b, "\x00Linux version "+release+" (builder@host) #1 SMP\n\x00"...)
	for n := uint32(1); len(b) < fill; n = n*1664525 + 1013904223 {
		b = append(b, byte(n>>24))
	}
	return b
}

// BzImage wraps a payload as an amd64 kernel that decompresses itself.
func BzImage(payload []byte) []byte {
	const sectors, offset = 3, 0x40
	b := make([]byte, (sectors+1)*512+offset)
	b[0x1f1] = sectors
	le.PutUint16(b[0x1fe:], 0xaa55)
	copy(b[0x202:], "HdrS")
	le.PutUint16(b[0x206:], 0x020f)
	le.PutUint32(b[0x248:], offset)
	le.PutUint32(b[0x24c:], uint32(len(payload)))
	return append(append(b, payload...), "behind the payload"...)
}

// ZBoot wraps a payload as an arm64 kernel that decompresses itself.
func ZBoot(payload []byte) []byte {
	b := make([]byte, 0x100)
	copy(b, "MZ\x00\x00zimg")
	le.PutUint32(b[8:], 0x100)
	le.PutUint32(b[12:], uint32(len(payload)))
	return append(append(b, payload...), make([]byte, 0x80)...)
}

// Image is a plain arm64 kernel of that release.
func Image(release string) []byte {
	b := make([]byte, 64)
	copy(b[56:], "ARM\x64")
	return append(b, "Linux version "+release+" (builder@host)"...)
}

// Module is a kernel module with what info says, lines of key=value.
func Module(info ...string) []byte {
	modinfo := []byte(strings.Join(info, "\x00") + "\x00")
	names := "\x00.modinfo\x00.shstrtab\x00"
	b := header(1, 62)
	b = append(append(b, modinfo...), names...)
	table := uint64(len(b))
	section := func(name, typ uint32, at, size int) {
		s := make([]byte, sectionSize)
		le.PutUint32(s, name)
		le.PutUint32(s[4:], typ)
		le.PutUint64(s[24:], uint64(at))
		le.PutUint64(s[32:], uint64(size))
		b = append(b, s...)
	}
	section(0, 0, 0, 0)
	section(1, 1, headerSize, len(modinfo))
	section(10, 3, headerSize+len(modinfo), len(names))
	le.PutUint64(b[40:], table)
	le.PutUint16(b[58:], sectionSize)
	le.PutUint16(b[60:], 3)
	le.PutUint16(b[62:], 2)
	return b
}

// Sign puts a signature behind a module, as the kernel's build does.
func Sign(module []byte) []byte {
	b := append(bytes.Clone(module), strings.Repeat("S", 300)...)
	b = append(b, 0, 0, 2, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, 300)
	return append(b, "~Module signature appended~\n"...)
}
