// Package kmod chooses the kernel modules that a sandbox's machine needs and
// the order in which they are to be loaded.
//
// A package has no modules.dep, which depmod makes where it is installed. All
// that is needed stands in the modules themselves, in the section .modinfo.
package kmod

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"regexp"
	"sort"
	"strings"

	"sb/sb-image/decompress"
)

// MaxSize bounds a module, unpacked, in bytes.
const MaxSize = 64 << 20

// Module is what a module says of itself.
type Module struct {
	Name    string // with underscores, as in /proc/modules
	depends []string
	before  []string // soft dependencies to be loaded before it, names or aliases
	at, len int64    // where its code lies in the set's spool
}

// Set is all modules of one kernel. The spool holds their code, which for a
// whole kernel is too much for memory; the caller owns it.
type Set struct {
	spool   spool
	end     int64
	modules map[string]*Module
	aliases map[string][]string // alias without wildcards to the modules that have it
	builtin map[string]bool     // names and aliases of what the kernel has in itself
}

type spool interface {
	io.ReaderAt
	io.WriterAt
}

// NewSet returns an empty set that keeps code in file.
func NewSet(file spool) *Set {
	return &Set{spool: file, modules: map[string]*Module{}, aliases: map[string][]string{}, builtin: map[string]bool{}}
}

// name turns a file name (kernel/fs/ext4/ext4.ko.xz) into a module's name. A
// blank and a dash in a name mean the same as an underscore (modprobe(8)).
func name(file string) string {
	base, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(base, "-", "_")
}

var moduleName = regexp.MustCompile(`\.ko(\.(xz|zst|gz))?$`)

// IsModule reports whether file is called as modules are.
func IsModule(file string) bool { return moduleName.MatchString(file) }

// Add reads one module, compressed or not.
func (s *Set) Add(file string, r io.Reader) error {
	z, err := decompress.New(r, decompress.Limit{Bytes: MaxSize, Ratio: 200, Free: MaxSize})
	if err != nil {
		return fmt.Errorf("read module %s: %w", file, err)
	}
	defer z.Close()
	code, err := io.ReadAll(z)
	if err != nil {
		return fmt.Errorf("read module %s: %w", file, err)
	}
	code, err = unsign(code)
	if err != nil {
		return fmt.Errorf("read module %s: %w", file, err)
	}
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return fmt.Errorf("read module %s: %w", file, err)
	}
	m := &Module{Name: name(file), at: s.end, len: int64(len(code))}
	if sec := f.Section(".modinfo"); sec != nil {
		info, err := sec.Data()
		if err != nil {
			return fmt.Errorf("read module %s: %w", file, err)
		}
		s.note(m, info)
	}
	if _, err := s.spool.WriteAt(code, s.end); err != nil {
		return err
	}
	s.end += m.len
	s.modules[m.Name] = m
	return nil
}

// note takes what .modinfo says: key=value, each ended by a NUL.
func (s *Set) note(m *Module, info []byte) {
	for line := range strings.SplitSeq(string(info), "\x00") {
		key, value, _ := strings.Cut(line, "=")
		switch key {
		case "depends":
			m.depends = append(m.depends, words(strings.ReplaceAll(value, ",", " "))...)
		case "softdep":
			m.before = append(m.before, pre(value)...)
		case "alias":
			// Those of devices, such as pci:v00001AF4d*, are not what a soft
			// dependency names.
			if !strings.ContainsAny(value, ":*") {
				alias := strings.ReplaceAll(value, "-", "_")
				s.aliases[alias] = append(s.aliases[alias], m.Name)
			}
		}
	}
}

func words(s string) []string { return strings.Fields(strings.ReplaceAll(s, "-", "_")) }

// pre returns the names behind "pre:" in a soft dependency, up to "post:".
func pre(softdep string) (names []string) {
	in := false
	for _, w := range words(softdep) {
		switch w {
		case "pre:":
			in = true
		case "post:":
			in = false
		default:
			if in {
				names = append(names, w)
			}
		}
	}
	return names
}

// AddBuiltin reads modules.builtin: a file name a line.
func (s *Set) AddBuiltin(r io.Reader) error {
	lines := bufio.NewScanner(io.LimitReader(r, 1<<20)) // a whole kernel has 0.03 MiB of it
	for lines.Scan() {
		s.builtin[name(lines.Text())] = true
	}
	return lines.Err()
}

// unsign cuts the signature off a module. No kernel here enforces signatures,
// checking one takes time, and the archive's own digest protects the bytes.
// The layout is include/linux/module_signature.h: code, signer, key id,
// signature, twelve bytes that end in the signature's length, the magic.
func unsign(code []byte) ([]byte, error) {
	rest, signed := bytes.CutSuffix(code, []byte("~Module signature appended~\n"))
	if !signed {
		return code, nil
	}
	const info = 12
	if len(rest) < info {
		return nil, fmt.Errorf("its signature is cut short")
	}
	tail := rest[len(rest)-info:]
	n := int64(info) + int64(tail[3]) + int64(tail[4]) + int64(binary.BigEndian.Uint32(tail[8:]))
	if n > int64(len(rest)) {
		return nil, fmt.Errorf("its signature is longer than itself")
	}
	return rest[:int64(len(rest))-n], nil
}

// Plan returns the modules among wanted, in an order in which each comes after
// what it needs. What the kernel has built in is left out. A wanted module
// that exists in neither form is returned in missing; a dependency that does
// not exist is an error, a soft one is not.
func (s *Set) Plan(wanted []string) (order []*Module, missing []string, err error) {
	p := &plan{set: s, state: map[string]int{}}
	for _, w := range wanted {
		if s.modules[w] == nil {
			if !s.builtin[w] {
				missing = append(missing, w)
			}
			continue
		}
		if err := p.visit(w); err != nil {
			return nil, nil, err
		}
	}
	return p.order, missing, nil
}

type plan struct {
	set   *Set
	state map[string]int
	order []*Module
}

const (
	visiting = 1
	done     = 2
)

func (p *plan) visit(name string) error {
	m := p.set.modules[name]
	switch {
	case m == nil && p.set.builtin[name]:
		return nil
	case m == nil:
		return fmt.Errorf("module %s is needed and not in the package", name)
	case p.state[name] == done:
		return nil
	case p.state[name] == visiting:
		return fmt.Errorf("module %s depends on itself", name)
	}
	p.state[name] = visiting
	for _, d := range m.depends {
		if err := p.visit(d); err != nil {
			return err
		}
	}
	for _, d := range m.before {
		for _, soft := range p.set.called(d) {
			// Two modules may ask softly for each other; which is first does not matter then.
			if p.state[soft] == 0 {
				if err := p.visit(soft); err != nil {
					return err
				}
			}
		}
	}
	p.state[name] = done
	p.order = append(p.order, m)
	return nil
}

// called returns the modules with that name or alias.
func (s *Set) called(name string) []string {
	if s.modules[name] != nil {
		return []string{name}
	}
	names := append([]string(nil), s.aliases[name]...)
	sort.Strings(names)
	return names
}

// Code returns the module's code without its signature.
func (s *Set) Code(m *Module) *io.SectionReader { return io.NewSectionReader(s.spool, m.at, m.len) }

// Size is the length of the module's code in bytes.
func (m *Module) Size() int64 { return m.len }

// Len is how many modules the set has.
func (s *Set) Len() int { return len(s.modules) }
