package undo

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"sb/lib/say"

	"github.com/rogpeppe/go-internal/diff"

	"golang.org/x/sys/unix"
)

// maxText is how large a file may be whose lines are compared, in bytes.
const maxText = 4 << 20

// Patch writes how the bytes of a file differ, in the unified form, from the
// record to the tree, which are read now. It is for people: what could act on a
// terminal is escaped. It returns how many lines were added and removed, -1 for
// what has no lines.
func (s *Store) Patch(w io.Writer, tree string, c Change) (added, removed int, err error) {
	from, err := s.text(c.Old)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", c.Path, err)
	}
	to, err := textNow(tree, c.New)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", c.Path, err)
	}
	before, after := "a/"+say.Safe(c.Path), "b/"+say.Safe(c.Path)
	if c.Old == nil {
		before = "/dev/null"
	}
	if c.New == nil {
		after = "/dev/null"
	}
	if !isText(from) || !isText(to) {
		_, err = fmt.Fprintf(w, "%s and %s differ: not text\n", before, after)
		return -1, -1, err
	}
	for line := range bytes.Lines(diff.Diff(before, from, after, to)) {
		text := strings.TrimSuffix(string(line), "\n")
		switch {
		case strings.HasPrefix(text, "+++ "), strings.HasPrefix(text, "--- "):
		case strings.HasPrefix(text, "+"):
			added++
		case strings.HasPrefix(text, "-"):
			removed++
		}
		if _, err := io.WriteString(w, say.Safe(text)+"\n"); err != nil {
			return 0, 0, err
		}
	}
	return added, removed, nil
}

// isText reports whether lines of it mean something, as git decides it.
func isText(b []byte) bool {
	return len(b) <= maxText && bytes.IndexByte(b[:min(len(b), 8000)], 0) < 0
}

// text is what a file of a record has, or too much of it.
func (s *Store) text(e *Entry) ([]byte, error) {
	switch {
	case e == nil || e.Kind == Dir:
		return nil, nil
	case e.Kind == Link:
		return []byte("a link to " + e.Target + "\n"), nil
	}
	f, err := s.open(e)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxText+1))
}

// textNow is what a file of the tree has now, or too much of it.
func textNow(tree string, e *Entry) ([]byte, error) {
	switch {
	case e == nil || e.Kind == Dir:
		return nil, nil
	case e.Kind == Link:
		return []byte("a link to " + e.Target + "\n"), nil
	}
	root, err := openTree(tree)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	dir, name := split(e.Path)
	at, err := walk(root, dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	fd, err := openAt(at, name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := stat(fd); err != nil || !isType(&st, unix.S_IFREG) {
		return nil, errMeanwhile
	}
	return io.ReadAll(io.LimitReader(f, maxText+1))
}
