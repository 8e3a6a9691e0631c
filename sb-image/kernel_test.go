package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sb/sb-image/testelf"
)

// kernelPackageFile makes a package of a kernel as Debian's are, for amd64.
func kernelPackageFile(t *testing.T, release string, leaveOut ...string) []byte {
	t.Helper()
	modules := map[string][]byte{
		"drivers/virtio/virtio_pci": testelf.Sign(testelf.Module("depends=virtio")),
		"drivers/virtio/virtio":     testelf.Module("depends="),
		"drivers/block/virtio_blk":  testelf.Module("depends=virtio"),
		"drivers/net/virtio_net":    testelf.Module("depends=virtio"),
		"drivers/virtio_console":    testelf.Module("depends=virtio"),
		"fs/overlayfs/overlay":      testelf.Module("depends="),
		"fs/erofs/erofs":            testelf.Module("softdep=pre: crc32c"),
		"fs/fuse/fuse":              testelf.Module("depends="),
		"crypto/crc32c-intel":       testelf.Module("alias=crc32c"),
		"drivers/not-wanted":        testelf.Module("depends="),
	}
	for _, m := range leaveOut {
		delete(modules, m)
	}
	top := "./lib/modules/" + release + "/"
	entries := []tarEntry{
		reg("./boot/config-"+release, "x", 0o644),
		reg("./boot/vmlinuz-"+release, string(testelf.BzImage(testelf.Kernel(release, 62, true, 0))), 0o644),
		reg(top+"modules.builtin", "kernel/fs/ext4/ext4.ko\n", 0o644),
	}
	for name, code := range modules {
		entries = append(entries, reg(top+"kernel/"+name+".ko", string(code), 0o644))
	}
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		b    []byte
	}{{"debian-binary", []byte("2.0\n")}, {"data.tar.gz", gzipLayer(tarOf(t, entries...)).packed}} {
		fmt.Fprintf(&deb, "%-16s%-12s%-6s%-6s%-8s%-10d`\n", m.name, "0", "0", "0", "100644", len(m.b))
		deb.Write(m.b)
		if len(m.b)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	return deb.Bytes()
}

func write(t *testing.T, file string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(file, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func hexOf(b []byte) string { return strings.TrimPrefix(digestOf(b), "sha256:") }

// installed installs a kernel for amd64, whatever machine this is.
func installed(t *testing.T, s *store, from, digest string, force bool) (string, error) {
	t.Helper()
	w, err := newKernelWork(s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.arch = "amd64"
	return w.install(context.Background(), from, digest, force)
}

func TestKernelFromFile(t *testing.T) {
	s := newStore(t)
	deb := kernelPackageFile(t, "6.1.0-57-cloud-amd64")
	file := write(t, filepath.Join(t.TempDir(), "k.deb"), deb)
	dir, err := installed(t, s, file, hexOf(deb), false)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.currentKernel("amd64")
	if err != nil || info.Dir != dir || info.Version != "6.1.0-57-cloud-amd64" || info.SHA256 != hexOf(deb) || info.Source != file {
		t.Errorf("%+v, %v", info, err)
	}
	k, err := os.ReadFile(filepath.Join(dir, "vmlinux"))
	if err != nil || !bytes.Equal(k, testelf.Kernel("6.1.0-57-cloud-amd64", 62, true, 0)) || hexOf(k) != info.VmlinuxSHA256 {
		t.Errorf("vmlinux has %d bytes, %v", len(k), err)
	}
	modules, err := os.ReadFile(filepath.Join(dir, "modules.cpio"))
	if err != nil || hexOf(modules) != info.ModulesSHA256 {
		t.Error("modules.cpio is not what kernel.toml says", err)
	}
	list := exec.Command("cpio", "-i", "--quiet", "--to-stdout", "modules/order")
	list.Stdin = bytes.NewReader(modules)
	order, err := list.Output()
	want := "virtio virtio_pci virtio_blk virtio_net virtio_console overlay crc32c_intel erofs fuse"
	if err != nil || string(order) != strings.ReplaceAll(want, " ", "\n")+"\n" || strings.Join(info.Modules, " ") != want {
		t.Errorf("load order %q, %v; want %s", order, err, want)
	}
	if bytes.Contains(modules, []byte("Module signature")) || bytes.Contains(modules, []byte("not_wanted")) {
		t.Error("a signature or a module that nobody wants is in the archive")
	}
	s.mustBeEmpty(t)
}

func TestKernelAgain(t *testing.T) {
	s := newStore(t)
	old, deb := kernelPackageFile(t, "6.1.0-1"), kernelPackageFile(t, "6.1.0-2")
	tmp := t.TempDir()
	first, err := installed(t, s, write(t, filepath.Join(tmp, "1.deb"), old), "", false)
	if err != nil {
		t.Fatal(err)
	}
	second, err := installed(t, s, write(t, filepath.Join(tmp, "2.deb"), deb), "", false)
	if err != nil || second == first {
		t.Fatalf("%s, %v", second, err)
	}
	mark := write(t, filepath.Join(second, "mark"), nil)
	for _, step := range []struct {
		file  string
		force bool
		want  string
		keeps bool
	}{{"2.deb", false, second, true}, {"1.deb", false, first, true}, {"2.deb", true, second, false}} {
		dir, err := installed(t, s, filepath.Join(tmp, step.file), "", step.force)
		info, e := s.currentKernel("amd64")
		if err != nil || e != nil || dir != step.want || info.Dir != step.want || exists(mark) != step.keeps {
			t.Errorf("%+v: %s, %v, in use %s, %v; mark kept %v", step, dir, err, info.Dir, e, exists(mark))
		}
	}
	out, stderr, code := result(t, "gc")
	if code != 0 || exists(first) || !exists(second) {
		t.Errorf("gc: %q, %s: the old kernel is there: %v, the one in use: %v", out, stderr, exists(first), exists(second))
	}
	s.mustBeEmpty(t)
}

func TestKernelRefusals(t *testing.T) {
	s := newStore(t)
	tmp := t.TempDir()
	good := kernelPackageFile(t, "6.1.0-1")
	for what, c := range map[string]struct {
		deb    []byte
		digest string
		want   string
	}{
		"another digest":          {good, strings.Repeat("0", 64), "has the sha256"},
		"no kernel in it":         {[]byte("!<arch>\n"), "", "package"},
		"a module is missing":     {kernelPackageFile(t, "6.1.0-1", "fs/erofs/erofs"), "", "no module erofs"},
		"a dependency is missing": {kernelPackageFile(t, "6.1.0-1", "drivers/virtio/virtio"), "", "module virtio is needed"},
		"cut short":               {good[:len(good)/2], "", "EOF"},
		"no kernel at all":        {[]byte("something else"), "", "not a Linux kernel"},
	} {
		if _, err := installed(t, s, write(t, filepath.Join(tmp, "k.deb"), c.deb), c.digest, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
		if names, _ := os.ReadDir(s.path("kernel")); len(names) != 0 {
			t.Errorf("%s: %v was left", what, names)
		}
	}
	s.mustBeEmpty(t)
	if _, err := installed(t, s, write(t, filepath.Join(tmp, "k.deb"), good), hexOf(good), false); err != nil {
		t.Errorf("the control: %v", err)
	}
	if _, err := installed(t, s, filepath.Join(tmp, "none"), "", false); err == nil {
		t.Error("a file that is not there was installed")
	}
}

// TestKernelAlone: a kernel without its package has no modules.
func TestKernelAlone(t *testing.T) {
	s := newStore(t)
	image := testelf.BzImage(testelf.Kernel("6.9.9", 62, true, 0))
	dir, err := installed(t, s, write(t, filepath.Join(t.TempDir(), "bzImage"), image), "", false)
	if err != nil {
		t.Fatal(err)
	}
	info, err := readKernel(dir)
	if err != nil || info.Version != "6.9.9" || len(info.Modules) != 0 || !exists(filepath.Join(dir, "modules.cpio")) {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestKernelFromURL(t *testing.T) {
	deb := kernelPackageFile(t, "6.1.0-1")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			w.Write(deb)
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/bad":
			w.Write(append([]byte("!"), deb...))
		case "/short":
			w.Header().Set("Content-Length", fmt.Sprint(len(deb)))
			w.Write(deb[:100])
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	s := newStore(t)
	for path, want := range map[string]string{"/bad": "has the sha256", "/short": "EOF", "/none": "404"} {
		if _, err := installed(t, s, server.URL+path, hexOf(deb), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", path, err, want)
		}
	}
	s.mustBeEmpty(t)
	dir, err := installed(t, s, server.URL+"/moved", hexOf(deb), false)
	if err != nil {
		t.Fatal(err)
	}
	server.Close() // what is there already is not fetched
	if again, err := installed(t, s, server.URL+"/good", hexOf(deb), false); err != nil || again != dir {
		t.Errorf("again: %s, %v", again, err)
	}
}

// fakeApt puts programs called apt-get and apt-cache on the path, and nothing
// else but what they need. Lists says what the machine's own lists have; private
// ones have the package always.
func fakeApt(t *testing.T, deb []byte, lists string) (log string) {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	log = filepath.Join(dir, "log")
	write(t, filepath.Join(dir, "deb"), deb)
	record := "Package: linux-image-cloud-amd64\nVersion: 6.1.1-1\nDepends: linux-image-6.1.0-1-cloud-amd64 (= 6.1.1-1)\nSHA256: 00\n"
	image := "Package: linux-image-6.1.0-1-cloud-amd64\nSHA256: " + hexOf(deb) + "\nDepends: kmod, linux-base (>= 4.3~)\n"
	script := "#!/bin/sh\necho \"$0 $*\" >>'" + log + "'\nlists=" + lists + "\ncase \"$*\" in *apt.conf*) lists=full ;; esac\n" +
		"case \"$lists $*\" in\n" +
		"none*show*) echo 'E: No packages found' >&2; exit 100 ;;\n" +
		"*show*linux-image-cloud-amd64) printf '" + strings.ReplaceAll(record, "\n", "\\n") + "' ;;\n" +
		"*show*=6.1.1-1) printf '" + strings.ReplaceAll(image, "\n", "\\n") + "' ;;\n" +
		"old*download*) echo 'E: 404 Not Found' >&2; exit 100 ;;\n" +
		"*download*) cp '" + filepath.Join(dir, "deb") + "' ./linux-image-6.1.0-1-cloud-amd64_6.1.1-1_amd64.deb ;;\n" +
		"*update) : ;;\n*) exit 99 ;;\nesac\n"
	for _, name := range []string{"apt-get", "apt-cache"} {
		write(t, filepath.Join(bin, name), []byte(script))
	}
	for _, name := range []string{"sh", "cp"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	return log
}

func TestKernelFromApt(t *testing.T) {
	deb := kernelPackageFile(t, "6.1.0-1-cloud-amd64")
	for lists, c := range map[string]struct{ updates, downloads int }{
		"full": {0, 1}, // the machine's lists do
		"none": {1, 1}, // there are none: private ones
		"old":  {1, 2}, // they name what the archive has no more
	} {
		s := newStore(t)
		log := fakeApt(t, deb, lists)
		dir, err := installed(t, s, "", "", false)
		if err != nil {
			t.Errorf("%s: %v", lists, err)
			continue
		}
		if info, err := readKernel(dir); err != nil || info.Source != "apt linux-image-6.1.0-1-cloud-amd64=6.1.1-1" || info.SHA256 != hexOf(deb) {
			t.Errorf("%s: %+v, %v", lists, info, err)
		}
		if again, err := installed(t, s, "", "", false); err != nil || again != dir {
			t.Errorf("%s, again: %s, %v", lists, again, err)
		}
		said, _ := os.ReadFile(log)
		updates, downloads := strings.Count(string(said), " update\n"), strings.Count(string(said), " download ")
		if lists == "none" {
			updates-- // once each time
		}
		if updates != c.updates || downloads != c.downloads {
			t.Errorf("%s: %d updates and %d downloads, want %d and %d:\n%s", lists, updates, downloads, c.updates, c.downloads, said)
		}
		s.mustBeEmpty(t)
	}
	// Apt gave another file than its lists say.
	s := newStore(t)
	fakeApt(t, deb, "full")
	script := filepath.Join(os.Getenv("PATH"), "apt-get")
	b, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	write(t, script, bytes.Replace(b, []byte(";;\n*update"), []byte("; echo more >>linux-image-6.1.0-1-cloud-amd64_6.1.1-1_amd64.deb ;;\n*update"), 1))
	if dir, err := installed(t, s, "", "", false); err == nil {
		t.Errorf("a file of another digest was installed as %s", dir)
	}
}

// TestKernelPinned: without apt the program's own kernel is asked for, by its digest.
func TestKernelPinned(t *testing.T) {
	for arch, p := range pinnedKernels() {
		if !isHex(p.sha1, 40) || !isHex(p.sha256, 64) || !strings.Contains(p.name, arch) {
			t.Errorf("%s: %+v", arch, p)
		}
	}
	asked := ""
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	s := newStore(t)
	cmd := sbImage(t, "kernel", "install")
	cmd.Env = append(cmd.Env, "PATH="+t.TempDir(), "HTTPS_PROXY="+proxy.URL, "https_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v", err)
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(pinnedArchive, "https://"), "/")
	if asked != "CONNECT "+host+":443" || !strings.Contains(said.String(), "there is no apt-get") || !strings.Contains(said.String(), "--sha256") {
		t.Errorf("asked %q, said %s", asked, said.String())
	}
	s.mustBeEmpty(t)
}

func TestReaderEnds(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	r := reader{ctx, strings.NewReader("ab")}
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the control: %d, %v", n, err)
	}
	stop()
	if _, err := io.ReadAll(r); err != context.Canceled {
		t.Errorf("%v", err)
	}
}
