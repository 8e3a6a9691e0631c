package undo

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
)

// A record is text: the first line names the form, the second is the header (JSON),
// then comes a line for each entry, each of its attributes and each thing that
// was skipped; and the last line has the SHA-256 of all before it, so that one that
// was cut is known. Names and targets are quoted as in Go, in ASCII.
//
//	d MODE UID GID MTIME DEV INO CTIME "PATH"
//	f MODE UID GID MTIME DEV INO CTIME SIZE SHA256 "PATH"
//	l MODE UID GID MTIME DEV INO CTIME "TARGET" "PATH"
//	x "NAME" "VALUE"      an attribute of the entry before
//	s "WHY" "PATH"        not recorded
//	i "WHY" "PATH"        ignored by rule
const (
	form        = "sb-undo-record 1"
	formVersion = 1
)

// The bounds of a record.
const (
	MaxEntries    = 4 << 20
	maxPath       = 4096    // PATH_MAX (linux/limits.h): what is deeper has no name to open it by
	maxAttribute  = 1 << 16 // XATTR_SIZE_MAX (linux/limits.h)
	maxAttributes = 1 << 12
	maxValues     = 4 * maxAttribute // of one file
	maxLine       = 8 << 16          // of a value quoted, and to spare
)

// encode writes the record.
func (r *Record) encode(w io.Writer) error {
	header, err := json.Marshal(r.Header)
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	out.WriteString(form + "\n" + string(header) + "\n")
	var line []byte
	for i := range r.Entries {
		line = r.Entries[i].append(line[:0])
		out.Write(line)
	}
	for _, s := range r.Skipped {
		kind := "s "
		if s.Ignored {
			kind = "i "
		}
		line = append(quote(append(quote(append(line[:0], kind...), s.Why), ' '), s.Path), '\n')
		out.Write(line)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "end %x\n", sum.Sum(nil))
	return err
}

func quote(b []byte, s string) []byte { return strconv.AppendQuoteToASCII(b, s) }

func (e *Entry) append(b []byte) []byte {
	b = append(b, byte(e.Kind), ' ')
	b = strconv.AppendUint(b, uint64(e.Mode), 8)
	for _, n := range []int64{int64(e.UID), int64(e.GID), e.Mtime.Sec, e.Mtime.Nsec} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	b = strconv.AppendUint(append(b, ' '), e.Identity.Dev, 10)
	b = strconv.AppendUint(append(b, ' '), e.Identity.Ino, 10)
	for _, n := range []int64{e.Identity.Ctime.Sec, e.Identity.Ctime.Nsec} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	switch e.Kind {
	case File:
		b = strconv.AppendInt(append(b, ' '), e.Size, 10)
		b = hex.AppendEncode(append(b, ' '), e.Digest[:])
	case Link:
		b = quote(append(b, ' '), e.Target)
	}
	b = append(quote(append(b, ' '), e.Path), '\n')
	for _, a := range e.Attributes {
		b = append(quote(append(quote(append(b, "x "...), a.Name), ' '), a.Value), '\n')
	}
	return b
}

// decoder reads a record line by line.
type decoder struct {
	in   *bufio.Reader
	sum  hash.Hash
	rec  *Record
	dirs map[string]bool
	line int
}

// decodeHeader reads no more than the header.
func decodeHeader(in io.Reader) (Header, error) {
	d := &decoder{in: bufio.NewReaderSize(in, maxLine), sum: sha256.New(), rec: &Record{}}
	err := d.header()
	return d.rec.Header, err
}

// decode reads a record and refuses what is not as encode writes it: a path that
// leads out of the tree or through what is no directory, entries out of order, an
// end that does not fit.
func decode(in io.Reader) (*Record, error) {
	d := &decoder{in: bufio.NewReaderSize(in, maxLine), sum: sha256.New(), rec: &Record{}, dirs: map[string]bool{}}
	if err := d.header(); err != nil {
		return nil, err
	}
	for {
		line, err := d.next()
		if err != nil {
			return nil, err
		}
		if rest, ok := strings.CutPrefix(string(line[:min(4, len(line))]), "end "); ok && rest == "" {
			if string(line[4:]) != hex.EncodeToString(d.sum.Sum(nil)) {
				return nil, errors.New("its digest is another: it was changed")
			}
			if _, err := d.in.ReadByte(); err != io.EOF {
				return nil, errors.New("there is more behind its end")
			}
			return d.rec, nil
		}
		d.sum.Write(line)
		d.sum.Write([]byte{'\n'})
		if err := d.take(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", d.line, err)
		}
		if len(d.rec.Entries)+len(d.rec.Skipped) > MaxEntries {
			return nil, fmt.Errorf("more than %d entries", MaxEntries)
		}
	}
}

// next is a line without its end, good until the next one.
func (d *decoder) next() ([]byte, error) {
	d.line++
	line, err := d.in.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return nil, fmt.Errorf("line %d is too long", d.line)
	case err == io.EOF:
		return nil, errors.New("it was cut")
	case err != nil:
		return nil, err
	}
	return line[:len(line)-1], nil
}

func (d *decoder) header() error {
	line, err := d.next()
	if err != nil {
		return err
	}
	if string(line) != form {
		return errors.New("it is not a record of this release's")
	}
	d.sum.Write([]byte(form + "\n"))
	if line, err = d.next(); err != nil {
		return err
	}
	d.sum.Write(line)
	d.sum.Write([]byte{'\n'})
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&d.rec.Header); err != nil {
		return fmt.Errorf("its header: %w", err)
	}
	if d.rec.Version != formVersion || !strings.HasPrefix(d.rec.Tree, "/") {
		return errors.New("its header names another form, or no tree")
	}
	return nil
}

// take reads the line of an entry.
func (d *decoder) take(line []byte) error {
	f := fields{rest: line}
	kind := f.word()
	switch string(kind) {
	case "d", "f", "l":
		return d.entry(Kind(kind[0]), &f)
	case "x":
		return d.attribute(&f)
	case "s", "i":
		s := Skipped{Why: f.quoted(maxPath), Path: f.quoted(maxPath), Ignored: kind[0] == 'i'}
		if n := len(d.rec.Skipped); n > 0 && d.rec.Skipped[n-1].Path >= s.Path {
			return errors.New("out of order")
		}
		if err := f.done(); err != nil {
			return err
		}
		d.rec.Skipped = append(d.rec.Skipped, s)
		return checkPath(s.Path)
	}
	return errors.New("of an unknown kind")
}

func (d *decoder) entry(kind Kind, f *fields) error {
	e := Entry{Kind: kind, Mode: uint32(f.number(8, 12)), UID: uint32(f.number(10, 32)), GID: uint32(f.number(10, 32))}
	e.Mtime = f.time()
	e.Identity.Dev, e.Identity.Ino = f.number(10, 64), f.number(10, 64)
	e.Identity.Ctime = f.time()
	switch kind {
	case File:
		e.Size = int64(f.number(10, 63))
		f.digest(&e.Digest)
	case Link:
		e.Target = f.quoted(maxPath)
	}
	e.Path = f.quoted(maxPath)
	if err := f.done(); err != nil {
		return err
	}
	if kind == Link && (e.Target == "" || strings.Contains(e.Target, "\x00")) {
		return errors.New("a link to nothing")
	}
	if n := len(d.rec.Entries); n > 0 && d.rec.Entries[n-1].Path >= e.Path || (n == 0) != (e.Path == "") {
		return errors.New("out of order")
	}
	if err := checkPath(e.Path); err != nil {
		return err
	}
	if e.Path == "" && kind != Dir || e.Path != "" && !d.dirs[parent(e.Path)] {
		return errors.New("it is in no directory")
	}
	if kind == Dir {
		d.dirs[e.Path] = true
	}
	d.rec.Entries = append(d.rec.Entries, e)
	return nil
}

func (d *decoder) attribute(f *fields) error {
	a := Attribute{Name: f.quoted(maxLine), Value: f.quoted(maxLine)}
	if err := f.done(); err != nil {
		return err
	}
	n := len(d.rec.Entries)
	if n == 0 || d.rec.Entries[n-1].Kind == Link || len(d.rec.Skipped) > 0 {
		return errors.New("an attribute of nothing")
	}
	e := &d.rec.Entries[n-1]
	m := len(e.Attributes)
	switch {
	case !strings.HasPrefix(a.Name, "user.") || len(a.Name) > 255 || strings.Contains(a.Name, "\x00") || len(a.Value) > maxAttribute:
		return errors.New("not an attribute of a user's")
	case m > 0 && e.Attributes[m-1].Name >= a.Name || m == maxAttributes:
		return errors.New("attributes out of order")
	}
	e.Attributes = append(e.Attributes, a)
	return nil
}

// checkPath refuses a path that leads anywhere but down from the tree.
func checkPath(path string) error {
	if path == "" {
		return nil
	}
	if len(path) > maxPath || strings.Contains(path, "\x00") {
		return errors.New("a path that no file has")
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return errors.New("a path that leads elsewhere")
		}
	}
	return nil
}

// parent is the directory that path is in, name what it is called there.
func parent(path string) string { dir, _ := split(path); return dir }

func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// fields takes the words of a line one after the other; the first error stays.
type fields struct {
	rest []byte
	err  error
}

func (f *fields) fail() { f.err = errors.New("not as a record has it") }

func (f *fields) word() []byte {
	word, rest, _ := bytes.Cut(f.rest, []byte{' '})
	f.rest = rest
	return word
}

func (f *fields) number(base, bits int) uint64 {
	n, err := strconv.ParseUint(string(f.word()), base, bits)
	if err != nil {
		f.fail()
	}
	return n
}

func (f *fields) time() Time {
	sec, err := strconv.ParseInt(string(f.word()), 10, 64)
	if err != nil {
		f.fail()
	}
	nsec := f.number(10, 30)
	if nsec >= 1e9 {
		f.fail()
	}
	return Time{sec, int64(nsec)}
}

func (f *fields) digest(d *Digest) {
	if word := f.word(); len(word) != 2*len(d) {
		f.fail()
	} else if _, err := hex.Decode(d[:], word); err != nil {
		f.fail()
	}
}

// quoted is the next text in quotes, which has most bytes at most.
func (f *fields) quoted(most int) string {
	prefix, err := strconv.QuotedPrefix(string(f.rest))
	if err != nil || prefix[0] != '"' {
		f.fail()
		return ""
	}
	f.rest = bytes.TrimPrefix(f.rest[len(prefix):], []byte{' '})
	text, err := strconv.Unquote(prefix)
	if err != nil || len(text) > most {
		f.fail()
	}
	return text
}

func (f *fields) done() error {
	if f.err == nil && len(f.rest) > 0 {
		f.fail()
	}
	return f.err
}
