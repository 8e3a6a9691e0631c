package ext4

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "make the shipped file systems anew")

// madeBy is the version of mke2fs that made what is shipped. Another one makes
// other bytes.
const madeBy = "mke2fs 1.47.0"

// mke2fs formats a file of gib GiB, always with the same result. The inode
// tables of a fresh file are zero, which lazy_itable_init=0 notes in the groups,
// so that no kernel fills them in the background. There is no resize_inode:
// its blocks would cost more than all else, and a kernel that grows the file system
// uses meta_bg instead; sparse_super2 would be smaller still, and cannot be grown.
func mke2fs(t *testing.T, file string, gib int64) {
	t.Helper()
	const features = "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super," +
		"large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
	const id = "5b5b5b5b-0000-4000-8000-00000000000"
	cmd := exec.Command("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "16384", "-G", "16", "-m", "0", "-L", "sb",
		"-O", features, "-J", "size=32", "-U", id+"1",
		"-E", "hash_seed="+id+"2,lazy_itable_init=0,lazy_journal_init=1,nodiscard,root_owner=0:0",
		file, fmt.Sprintf("%dg", gib))
	cmd.Env = append(os.Environ(), "MKE2FS_CONFIG=/dev/null", "E2FSPROGS_FAKE_TIME=1", "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, out)
	}
}

// pack returns the records of a disk: its blocks that are not zero.
func pack(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []byte
	var at, start int64
	var run []byte
	flush := func() {
		if len(run) > 0 {
			out = binary.LittleEndian.AppendUint64(out, uint64(start))
			out = binary.LittleEndian.AppendUint64(out, uint64(len(run)))
			out, run = append(out, run...), nil
		}
	}
	block, zero := make([]byte, 4096), make([]byte, 4096)
	for {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			flush()
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			t.Fatal(err)
		}
		for at = data; at < hole; at += 4096 {
			if _, err := f.ReadAt(block, at); err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(block, zero) {
				flush()
				continue
			}
			if len(run) == 1<<20 || start+int64(len(run)) != at {
				flush()
			}
			if len(run) == 0 {
				start = at
			}
			run = append(run, block...)
		}
	}
}

// version returns what mke2fs says of itself. Its programs lie where only root looks.
func version(t *testing.T) string {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := exec.Command("mke2fs", "-V").CombinedOutput()
	if err != nil {
		t.Fatalf("mke2fs: %v: install e2fsprogs", err)
	}
	return string(out)
}

// TestShipped makes each shipped file system again and compares.
func TestShipped(t *testing.T) {
	if v := version(t); !strings.HasPrefix(v, madeBy+" ") {
		t.Skipf("what is shipped was made by %s; this is %s", madeBy, v)
	}
	total := 0
	for _, gib := range []int64{1, 2, 4, 8, 16, 32, 64} {
		file := filepath.Join(t.TempDir(), "disk")
		mke2fs(t, file, gib)
		want := pack(t, file)
		name := fmt.Sprintf("%dg.ext4.zst", gib)
		if *update {
			z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, z.EncodeAll(want, nil), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		packed, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		z, err := zstd.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s holds other bytes (%d) than mke2fs makes (%d), %v: go test ./ext4 -update", name, len(got), len(want), err)
		}
		total += len(packed)
	}
	if total > 16<<10 {
		t.Errorf("%d bytes are shipped; a few KB was the plan", total)
	}
}

func TestMake(t *testing.T) {
	version(t)
	for _, size := range []int64{1 << 30, 2 << 30, 16 << 30, 20 << 30, 64 << 30, 1 << 40, 3<<30 + 1<<20} {
		file := filepath.Join(t.TempDir(), "disk")
		if err := Make(file, size); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(file, &st); err != nil {
			t.Fatal(err)
		}
		if st.Size != size || st.Blocks*512 >= 1<<20 || st.Mode&0o777 != 0o600 {
			t.Errorf("%d bytes asked for: size %d, %d bytes on the disk, mode %o", size, st.Size, st.Blocks*512, st.Mode)
		}
		// -n changes nothing: a file system smaller than its disk is no fault.
		if out, err := exec.Command("e2fsck", "-f", "-n", file).CombinedOutput(); err != nil {
			t.Errorf("e2fsck of %d bytes: %v\n%s", size, err, out)
		}
	}
}

func TestMakeRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int64{-1, 0, 1<<30 - 1<<20, 1<<30 + 1, 1<<40 + 1<<20} {
		file := filepath.Join(dir, "disk")
		if err := Make(file, size); err == nil {
			t.Errorf("a disk of %d bytes was made", size)
		}
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("a disk of %d bytes was left", size)
		}
	}
	file := filepath.Join(dir, "there")
	if err := Make(file, Min); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Make(file, Min); err == nil {
		t.Error("a file that was there was taken")
	}
	if b, _ := os.ReadFile(file); string(b) != "mine" {
		t.Error("a file that was there was changed")
	}
}

func BenchmarkMake(b *testing.B) {
	dir := b.TempDir()
	for n := range b.N {
		if err := Make(filepath.Join(dir, fmt.Sprint(n)), 16<<30); err != nil {
			b.Fatal(err)
		}
	}
}
