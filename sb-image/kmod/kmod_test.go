package kmod

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sb/sb-image/testelf"
)

func newSet(t testing.TB) *Set {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return NewSet(f)
}

// all are modules as kernels have them: dashes in file names, signatures,
// compression, soft dependencies by name and by alias.
func all(t *testing.T) *Set {
	t.Helper()
	s := newSet(t)
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(testelf.Sign(testelf.Module("name=gone", "depends=")))
	w.Close()
	for file, code := range map[string][]byte{
		"kernel/fs/ext4/ext4.ko":                 testelf.Sign(testelf.Module("license=GPL", "softdep=pre: crc32c post: never", "depends=mbcache,jbd2", "alias=fs-ext4")),
		"kernel/fs/jbd2/jbd2.ko":                 testelf.Module("depends="),
		"kernel/fs/mbcache.ko":                   testelf.Module("depends="),
		"kernel/crypto/crc32c_generic.ko":        testelf.Module("alias=crc32c", "alias=crypto-crc32c"),
		"kernel/arch/x86/crypto/crc32c-intel.ko": testelf.Module("alias=crc32c", "alias=cpu:type:x86*", "depends="),
		"kernel/drivers/virtio/virtio_pci.ko":    testelf.Module("depends=virtio,virtio-ring", "alias=pci:v00001AF4d*"),
		"kernel/drivers/virtio/virtio.ko":        testelf.Module("depends=virtio_ring"),
		"kernel/drivers/virtio/virtio-ring.ko":   testelf.Module("depends="),
		"kernel/never.ko":                        testelf.Module(),
		"kernel/broken.ko":                       testelf.Module("depends=not_there"),
		"kernel/a.ko":                            testelf.Module("depends=b"),
		"kernel/b.ko":                            testelf.Module("depends=a"),
		"kernel/soft1.ko":                        testelf.Module("softdep=pre: soft2"),
		"kernel/soft2.ko":                        testelf.Module("softdep=pre: soft1 nobody"),
		"kernel/gone.ko.gz":                      gz.Bytes(),
	} {
		if !IsModule(file) {
			t.Errorf("%s is called as no module is", file)
		}
		if err := s.Add(file, bytes.NewReader(code)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddBuiltin(strings.NewReader("kernel/lib/crc32.ko\nkernel/fs/over-lay.ko\n")); err != nil {
		t.Fatal(err)
	}
	return s
}

func names(order []*Module) string {
	var n []string
	for _, m := range order {
		n = append(n, m.Name)
	}
	return strings.Join(n, " ")
}

func TestPlan(t *testing.T) {
	s := all(t)
	for _, c := range []struct{ wanted, order, missing string }{
		{"virtio_pci", "virtio_ring virtio virtio_pci", ""},
		{"virtio virtio_pci virtio_ring", "virtio_ring virtio virtio_pci", ""},
		{"ext4", "mbcache jbd2 crc32c_generic crc32c_intel ext4", ""},
		{"over_lay gone crc32", "gone", ""},
		{"soft1", "soft2 soft1", ""},
		{"nothing jbd2 nobody", "jbd2", "nothing nobody"},
		{"", "", ""},
	} {
		order, missing, err := s.Plan(strings.Fields(c.wanted))
		if err != nil || names(order) != c.order || strings.Join(missing, " ") != c.missing {
			t.Errorf("%s: %q, missing %q, %v; want %q and %q", c.wanted, names(order), missing, err, c.order, c.missing)
		}
	}
	for wanted, want := range map[string]string{"broken": "not_there", "a": "itself"} {
		if _, _, err := s.Plan([]string{wanted}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wanted, err)
		}
	}
}

func TestCode(t *testing.T) {
	s := newSet(t)
	plain := testelf.Module("depends=")
	for _, file := range []string{"x.ko", "y.ko"} {
		if err := s.Add(file, bytes.NewReader(testelf.Sign(plain))); err != nil {
			t.Fatal(err)
		}
	}
	order, _, err := s.Plan([]string{"y", "x"})
	if err != nil || len(order) != 2 {
		t.Fatal(order, err)
	}
	for _, m := range order {
		code, err := io.ReadAll(s.Code(m))
		if err != nil || !bytes.Equal(code, plain) || m.Size() != int64(len(plain)) {
			t.Errorf("%s: %d bytes, %v; want %d without the signature", m.Name, len(code), err, len(plain))
		}
	}
}

func TestAddRefuses(t *testing.T) {
	s := newSet(t)
	good := testelf.Module("depends=")
	if err := s.Add("good.ko", bytes.NewReader(good)); err != nil {
		t.Fatalf("the control: %v", err)
	}
	longer := testelf.Sign(good)
	longer[len(longer)-28-4] = 0xff
	for what, code := range map[string][]byte{
		"no ELF file":                  []byte("nothing"),
		"a signature longer than it":   longer,
		"nothing but a signature":      []byte("~Module signature appended~\n"),
		"half a gzip stream":           {0x1f, 0x8b, 8},
		"sections outside of the file": good[:100],
	} {
		if err := s.Add("bad.ko", bytes.NewReader(code)); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if len(s.modules) != 1 {
		t.Errorf("%d modules", len(s.modules))
	}
}

// FuzzAdd: no module makes it panic, and one that was taken is read back as it
// is less its signature.
func FuzzAdd(f *testing.F) {
	f.Add(testelf.Module("depends=a,b", "softdep=pre: x post: y"))
	f.Add(testelf.Sign(testelf.Module("alias=z")))
	f.Fuzz(func(t *testing.T, code []byte) {
		s := newSet(t)
		if s.Add("x.ko", bytes.NewReader(code)) != nil {
			return
		}
		got, err := io.ReadAll(s.Code(s.modules["x"]))
		if err != nil || len(got) > len(code) && code[0] == 0x7f {
			t.Errorf("%d bytes of %d, %v", len(got), len(code), err)
		}
		s.Plan([]string{"x"})
	})
}
