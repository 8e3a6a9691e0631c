//go:build linux

package share

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"sb/lib/fd"
	"sb/sb-vm/share/fusewire"
)

// folding puts something before a server that makes its directories loose: every
// name is taken in lower case, and the byte 0xff as an e.
func folding(conn *os.File) (*os.File, error) {
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
				fold(m[fusewire.InHeader+at:])
			}
			if _, err := far.Write(m); err != nil {
				return
			}
		}
	}()
	go func() { io.Copy(conn, far); unix.Shutdown(int(conn.Fd()), unix.SHUT_WR) }()
	return near, nil
}

func fold(name []byte) {
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			name[i] = c | 0x20
		}
		if c == 0xff {
			name[i] = 'e'
		}
	}
}

func TestOtherSpellings(t *testing.T) {
	loose := mount(t, exportSpec{Fold: true})
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
			loose := mount(t, exportSpec{Fold: true})
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
