package live

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/sys/unix"
)

// forms are how a word may lie in memory or on a disk: as it is, as a program keeps
// its strings that has them in UTF-16, and as headers and dumps have them.
func forms(word string) (all map[string][]byte) {
	all = map[string][]byte{"as it is": []byte(word), "in hexadecimal": []byte(hex.EncodeToString([]byte(word)))}
	var wide []byte
	for _, u := range utf16.Encode([]rune(word)) {
		wide = append(wide, byte(u), byte(u>>8))
	}
	all["in UTF-16"] = wide
	// In base64 three bytes are four letters: what depends on the word alone, for
	// each place that it may begin at.
	for pad := range 3 {
		text := base64.StdEncoding.EncodeToString(append(make([]byte, pad), word...))
		from, to := (pad*8+5)/6, (pad+len(word))*8/6
		all[fmt.Sprintf("in base64 after %d", pad)] = []byte(text[from:to])
	}
	return all
}

// searched is what is looked for, by what it is called.
type searched map[string][]byte

// words looks for words as they are, and for the hidden one in every form.
func words(hidden string, plain ...string) searched {
	s := searched{}
	for form, text := range forms(hidden) {
		s[hidden+" "+form] = text
	}
	for _, w := range plain {
		s[w] = []byte(w)
	}
	return s
}

// in adds to found what is in a part of a file or a memory, from its offset on. What
// cannot be read, such as a device's memory, is passed over.
func (s searched) in(f io.ReaderAt, from, to int64, found map[string]bool) (read int64) {
	const chunk, overlap = 4 << 20, 4 << 10
	buf := make([]byte, chunk)
	for from < to {
		n, err := f.ReadAt(buf[:min(chunk, to-from)], from)
		for name, text := range s {
			if !found[name] && bytes.Contains(buf[:n], text) {
				found[name] = true
			}
		}
		read += int64(n)
		switch {
		case err != nil && n == 0:
			from += int64(os.Getpagesize())
		case from+int64(n) < to && n > overlap:
			from += int64(n) - overlap
		default:
			from += int64(n)
		}
	}
	return read
}

// inMemory looks through all that a process has in memory.
func (s searched) inMemory(t *testing.T, pid int) (found map[string]bool, read int64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	found = map[string]bool{}
	for l := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(l, "%x-%x %s", &from, &to, &mode); n == 3 && mode[0] == 'r' && from >= 0 && to > 0 {
			read += s.in(mem, from, to, found)
		}
	}
	return found, read
}

// inFile looks through a file, but for its holes.
func (s searched) inFile(t *testing.T, path string) (found map[string]bool, read int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found = map[string]bool{}
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return found, read
		}
		if err != nil {
			t.Fatalf("look through %s: %v", path, err)
		}
		if at, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			t.Fatalf("look through %s: %v", path, err)
		}
		read += s.in(f, from, at, found)
	}
}

// inTree looks through the files of a directory, and returns those that have some.
func (s searched) inTree(t *testing.T, dir string) (files []string) {
	t.Helper()
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if found, _ := s.inFile(t, path); len(found) > 0 {
				files = append(files, path)
			}
		}
		return nil
	})
	return files
}

// heldFiles are the regular files that a process has open: a machine's disks, the one
// that has no name any more too.
func heldFiles(pid int) (paths []string) {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range all {
		link, _ := os.Readlink(path)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && link[0] == '/' {
			paths = append(paths, path)
		}
	}
	return paths
}

func names(found map[string]bool) (list []string) {
	for name := range found {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// TestSearchFinds: the search by which other tests find nothing finds each form of a
// word, in memory and in files, across the border of what it reads at a time.
func TestSearchFinds(t *testing.T) {
	t.Parallel()
	claim(t, "search")
	s := words("searched-for-by-the-test-of-it")
	for name, text := range s {
		file := filepath.Join(t.TempDir(), "file")
		hidden := append(append(make([]byte, 4<<20-5), text...), make([]byte, 100)...)
		if err := os.WriteFile(file, hidden, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, read := s.inFile(t, file); !found[name] || len(found) != 1 || read < int64(len(hidden)) {
			t.Errorf("%s: found %v in the file, of which %d bytes were read", name, found, read)
		}
	}
	if found, read := s.inMemory(t, os.Getpid()); len(found) != len(s) || read < 1<<20 {
		t.Errorf("found %v in memory, of which %d bytes were read", found, read)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	os.WriteFile(empty, make([]byte, 1<<20), 0o600)
	if found, _ := s.inFile(t, empty); len(found) > 0 {
		t.Errorf("control: found %v where there is nothing", found)
	}
}
