//go:build linux

package share

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"sb/lib/fd"
	"sb/sb-vm/share/fusewire"
)

// folding puts something before a server that makes its directories loose: the byte
// 0xff is taken as an e, GIT~1 as .git, and with foldCase every name in lower case.
func folding(conn *os.File, how string) (*os.File, error) {
	near, far, err := fd.Pair("folding", fd.Stream)
	if err != nil {
		return nil, err
	}
	// Where the names begin in the bodies of requests.
	names := map[uint32]int{
		fusewire.Lookup: 0, fusewire.Mkdir: 8, fusewire.Create: 16, fusewire.Mknod: 16, fusewire.Unlink: 0,
		fusewire.Rmdir: 0, fusewire.Rename2: 16, fusewire.Rename: 8, fusewire.Link: 8, fusewire.Symlink: 0,
	}
	go func() {
		defer unix.Shutdown(int(far.Fd()), unix.SHUT_WR)
		for {
			m := make([]byte, fusewire.InHeader)
			if _, err := io.ReadFull(conn, m); err != nil {
				return
			}
			h, err := fusewire.ParseHeader(m)
			if err != nil {
				return
			}
			m = append(m, make([]byte, h.Len-fusewire.InHeader)...)
			if _, err := io.ReadFull(conn, m[fusewire.InHeader:]); err != nil {
				return
			}
			if at, ok := names[h.Op]; ok {
				m = append(m[:fusewire.InHeader+at], fold(m[fusewire.InHeader+at:], how)...)
				binary.LittleEndian.PutUint32(m, uint32(len(m)))
			}
			if _, err := far.Write(m); err != nil {
				return
			}
		}
	}()
	go func() { io.Copy(conn, far); unix.Shutdown(int(conn.Fd()), unix.SHUT_WR) }()
	return near, nil
}

// How names are folded.
const (
	foldCase = "case"
	foldOdd  = "odd" // case is told apart
)

func fold(name []byte, how string) []byte {
	for i, c := range name {
		if c >= 'A' && c <= 'Z' && how == foldCase {
			name[i] = c | 0x20
		}
		if c == 0xff {
			name[i] = 'e'
		}
	}
	name = bytes.Replace(name, []byte("ss"), []byte("\xc3\x9f"), 1)
	return bytes.Replace(bytes.Replace(name, []byte("GIT~1"), []byte(".git"), 1), []byte("git~1"), []byte(".git"), 1)
}

func TestOtherSpellings(t *testing.T) {
	loose := mount(t, exportSpec{Fold: foldCase})
	must(t, os.MkdirAll(loose.on("src/.git/hooks"), 0o755))
	write1(t, loose.on("src/readme"), "text")
	write1(t, loose.on("src/claude.md"), "rules")
	if got := read1(t, loose.in("src/README")); got != "text" {
		t.Fatalf("control: the host's directory is not loose: %q", got)
	}
	for _, ruled := range []bool{false, true} {
		spec := exportSpec{Dir: loose.in("src")}
		if ruled {
			spec.Protected = []string{"claude.md", ".mcp.json", ".git/hooks"}
		}
		r := newRaw(t, spec).start()
		n := r.node(1, "readme")
		other, err := r.lookup(1, "README")
		if err != nil || (other == n) == ruled {
			t.Errorf("rules %v: readme is %d, README is %d, %v", ruled, n, other, err)
		}
		odd, err := r.lookup(1, "claud\xff.md")
		if err != nil || (odd != 0) == ruled {
			t.Errorf("rules %v: the odd spelling is %d, %v", ruled, odd, err)
		}
		for _, name := range []string{"claud\xff.md", "CLAUD\xff.MD"} {
			if _, _, err := r.create(1, name); (err == nil) == ruled {
				t.Errorf("rules %v: %q is created: %v", ruled, name, err)
			}
			if err := r.unlink(1, name); (err == nil) == ruled {
				t.Errorf("rules %v: %q is removed: %v", ruled, name, err)
			}
			write1(t, loose.on("src/claude.md"), "rules")
		}
		r.end()
	}
}

// A name that is absent cannot be made under another spelling either.
func TestAbsentNameInOtherSpelling(t *testing.T) {
	for what, make := range map[string]func(r *raw, name string) error{
		"create":  func(r *raw, name string) error { return third(r.create(1, name)) },
		"mkdir":   func(r *raw, name string) error { return r.mkdir(1, name) },
		"symlink": func(r *raw, name string) error { return r.symlink(1, name, "x") },
		"rename":  func(r *raw, name string) error { return r.rename(1, "free", 1, name, 0) },
	} {
		for _, ruled := range []bool{false, true} {
			// Mounted for each, as this kernel may hold what it saw before.
			loose := mount(t, exportSpec{Fold: foldCase})
			must(t, os.Mkdir(loose.on("src"), 0o755))
			write1(t, loose.on("src/free"), "")
			spec := exportSpec{Dir: loose.in("src")}
			if ruled {
				spec.Protected = []string{"claude.md"}
			}
			r := newRaw(t, spec).start()
			if err := make(r, "claud\xff.md"); (err == nil) == ruled {
				t.Errorf("rules %v: %s: %v", ruled, what, err)
			}
			if _, err := os.Lstat(loose.on("src/claude.md")); (err == nil) == ruled {
				t.Errorf("rules %v: after %s on the host: %v", ruled, what, err)
			}
			r.end()
		}
	}
}

// Where case is told apart, a name can have another spelling all the same.
func TestOddSpellings(t *testing.T) {
	loose := mount(t, exportSpec{Fold: foldOdd})
	must(t, os.MkdirAll(loose.on("src/.git/hooks"), 0o755))
	write1(t, loose.on("src/claude.md"), "rules")
	write1(t, loose.on("src/gro\xc3\x9f"), "umlaut")
	write1(t, loose.on("src/other"), "")
	if _, err := os.Lstat(loose.in("src/.GIT")); err == nil {
		t.Fatal("control: the host's directory does not tell case apart")
	}
	for _, ruled := range []bool{false, true} {
		spec := exportSpec{Dir: loose.in("src")}
		if ruled {
			spec.Protected = []string{"claude.md", "/.git/hooks", "/gro\xc3\x9f"}
		}
		r := newRaw(t, spec).start()
		r.node(1, "other")
		for _, name := range []string{"claud\xff.md", "GIT~1", "gross"} {
			if n, err := r.lookup(1, name); err != nil || (n != 0) == ruled {
				t.Errorf("rules %v: %q is %d, %v", ruled, name, n, err)
			}
		}
		for _, name := range []string{"claude.md", ".git", "gro\xc3\x9f", "other"} {
			if n, err := r.lookup(1, name); err != nil || n == 0 {
				t.Errorf("rules %v: %q is %d, %v", ruled, name, n, err)
			}
		}
		r.end()
	}
}
