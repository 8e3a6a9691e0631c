package flatten

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sparse is an archive of one file of that size which is nothing but a hole (the old
// GNU form: tar(5), "GNU tar archives").
func sparse(size int64) []byte {
	b := make([]byte, 512+1024)
	copy(b, "hole")
	copy(b[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(b[257:], "ustar  \x00")
	copy(b[386:], fmt.Sprintf("%011o\x0000000000000\x00", size))
	copy(b[483:], fmt.Sprintf("%011o\x00", size))
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// TestSparse: a small hole is zeros; an archive of a few bytes does not fill the disk.
func TestSparse(t *testing.T) {
	m, image := newImage(t)
	if err := m.Layer(bytes.NewReader(sparse(1 << 20))); err != nil {
		t.Fatalf("the control: %v", err)
	}
	err := m.Layer(bytes.NewReader(sparse(8<<30 - 1)))
	if err == nil || !strings.Contains(err.Error(), "holes") {
		t.Errorf("%v", err)
	}
	if st, _ := image.Stat(); st.Size() > freeBytes+1<<21 {
		t.Errorf("%d bytes were written", st.Size())
	}
}

// TestManyWhiteouts: to ask again and again for what is done takes no time, wherever the
// files are whose names are asked about.
func TestManyWhiteouts(t *testing.T) {
	const n = 40_000
	var base, top []entry
	base = append(base, file("old", ""), file("d/old", ""))
	for i := range n {
		top = append(top, file(fmt.Sprint("d/e/", i), ""))
	}
	for range n {
		top = append(top, file("d/.wh..wh..opq", ""), file(".wh.d", ""), file("d/.wh.e", ""))
	}
	m, _ := newImage(t)
	if err := m.Layer(bytes.NewReader(layer(t, base...))); err != nil {
		t.Fatal(err)
	}
	l := bytes.NewReader(layer(t, top...))
	begun := time.Now()
	if err := m.Layer(l); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 20*time.Second { // it was minutes
		t.Errorf("it took %v", took)
	}
	d := m.root.Children["d"].Inode
	if len(d.Children) != 1 || len(d.Children["e"].Inode.Children) != n || m.root.Children["old"].Inode == nil {
		t.Errorf("in d: %d, in d/e: %d", len(d.Children), len(d.Children["e"].Inode.Children))
	}
}

// TestManyDropped: attributes that are left out are told apart by name up to a bound.
func TestManyDropped(t *testing.T) {
	var all []entry
	for i := range 100 {
		all = append(all, entry{kind: tar.TypeDir, name: fmt.Sprint(i), set: func(h *tar.Header) {
			h.PAXRecords = map[string]string{fmt.Sprint("SCHILY.xattr.other.", i): "x"}
		}})
	}
	m, _ := newImage(t)
	if err := m.Layer(bytes.NewReader(layer(t, all...))); err != nil {
		t.Fatal(err)
	}
	if len(m.Dropped) != maxDropped+1 || m.Dropped["other.3"] != 1 || m.Dropped[Others] != 100-maxDropped {
		t.Errorf("%v", m.Dropped)
	}
}
