package vmlinux

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sb/sb-image/testelf"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const amd64, aarch64 = 62, 183

func run(t *testing.T, in []byte, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	return out
}

// packed are the payloads that kernels' builds make (scripts/Makefile.lib).
func packed(t *testing.T, kernel []byte) map[string][]byte {
	t.Helper()
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(kernel)))
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(kernel)
	w.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	legacy := []byte{0x02, 0x21, 0x4c, 0x18}
	for rest := kernel; len(rest) > 0; {
		n := min(len(rest), lz4Block)
		block := make([]byte, lz4.CompressBlockBound(n))
		m, err := lz4.CompressBlock(rest[:n], block, nil)
		if err != nil || m == 0 {
			t.Fatalf("lz4: %d bytes, %v", m, err)
		}
		legacy = binary.LittleEndian.AppendUint32(legacy, uint32(m))
		legacy, rest = append(legacy, block[:m]...), rest[n:]
	}
	return map[string][]byte{
		"plain": kernel,
		"gzip":  gz.Bytes(),
		"zstd":  append(z.EncodeAll(kernel, nil), size...),
		"lz4":   append(legacy, size...),
		"xz":    append(run(t, kernel, "xz", "--check=crc32", "--x86", "--lzma2=,dict=32MiB", "-c"), size...),
	}
}

func TestBzImage(t *testing.T) {
	// Larger than a block of lz4, and with something that the x86 filter changes.
	kernel := append(testelf.Kernel("6.1.0-57-cloud-amd64", amd64, true, 9<<20), bytes.Repeat([]byte{0xe8, 0x10, 0, 0, 0, 0x90}, 20_000)...)
	for kind, payload := range packed(t, kernel) {
		got, err := Extract(testelf.BzImage(payload), "amd64")
		if err != nil || !bytes.Equal(got, kernel) {
			t.Errorf("%s: %d bytes of %d, %v", kind, len(got), len(kernel), err)
			continue
		}
		if v := Version(got); v != "6.1.0-57-cloud-amd64" {
			t.Errorf("%s: version %q", kind, v)
		}
		if kind == "plain" {
			continue
		}
		for _, cut := range []int{100, len(payload) / 2} {
			if _, err := Extract(testelf.BzImage(payload[:cut]), "amd64"); err == nil {
				t.Errorf("%s cut to %d bytes: no error", kind, cut)
			}
		}
	}
}

func TestOtherForms(t *testing.T) {
	vmlinux := testelf.Kernel("6.6.1", amd64, true, 0)
	image := testelf.Image("6.6.2")
	for what, c := range map[string]struct {
		in, want []byte
		arch     string
	}{
		"vmlinux":             {vmlinux, vmlinux, "amd64"},
		"Image":               {image, image, "arm64"},
		"Image.gz":            {packed(t, image)["gzip"], image, "arm64"},
		"an EFI image, gzip":  {testelf.ZBoot(packed(t, image)["gzip"]), image, "arm64"},
		"an EFI image, plain": {testelf.ZBoot(image), image, "arm64"},
	} {
		if got, err := Extract(c.in, c.arch); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := testelf.Kernel("6.6.1", amd64, true, 0)
	if _, err := Extract(testelf.BzImage(good), "amd64"); err != nil {
		t.Fatalf("the control: %v", err)
	}
	old := testelf.BzImage(good)
	old[0x206] = 7
	outside := testelf.BzImage(good)
	binary.LittleEndian.PutUint32(outside[0x24c:], 1<<31)
	for what, c := range map[string]struct {
		image []byte
		arch  string
		want  string
	}{
		"an amd64 kernel on arm64":  {good, "arm64", "not for arm64"},
		"an arm64 kernel on amd64":  {testelf.Image("1"), "amd64", "not for amd64"},
		"an arm64 vmlinux":          {testelf.Kernel("1", aarch64, true, 0), "amd64", "not for amd64"},
		"a kernel without PVH":      {testelf.Kernel("1", amd64, false, 0), "amd64", "CONFIG_PVH"},
		"an old boot protocol":      {old, "amd64", "2.07"},
		"a payload outside":         {outside, "amd64", "points to"},
		"something else":            {[]byte(strings.Repeat("no kernel ", 100)), "amd64", "not a Linux kernel"},
		"nothing":                   {nil, "amd64", "not a Linux kernel"},
		"a bzImage of nothing good": {testelf.BzImage([]byte("no kernel")), "amd64", "not a Linux kernel"},
	} {
		if _, err := Extract(c.image, c.arch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
	}
}

// FuzzExtract: no file makes it panic, and what it returns is a kernel for the
// machine that was asked for.
func FuzzExtract(f *testing.F) {
	k := testelf.Kernel("6.6.1", amd64, true, 0)
	f.Add(k)
	f.Add(testelf.BzImage(k))
	f.Add(testelf.ZBoot(testelf.Image("1")))
	f.Add(testelf.BzImage([]byte{0x02, 0x21, 0x4c, 0x18, 4, 0, 0, 0, 1, 2, 3, 4, 9, 9, 9, 9}))
	f.Fuzz(func(t *testing.T, image []byte) {
		got, err := Extract(image, "amd64")
		if err == nil && check(got, "amd64") != nil {
			t.Error("what was returned is no kernel")
		}
		Version(image)
	})
}
