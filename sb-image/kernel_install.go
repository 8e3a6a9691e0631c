package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"sb/lib/cpio"
	"sb/lib/say"
	"sb/sb-image/deb"
	"sb/sb-image/kmod"
	"sb/sb-image/vmlinux"

	"github.com/BurntSushi/toml"
)

// The modules that a machine of ours needs: its devices, its root (a read-only
// erofs below, an ext4 disk above, joined by overlay), its shares. A kernel may
// have any of them built in.
func wantedModules() []string {
	return []string{
		"virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng",
		"overlay", "erofs", "ext4", "fuse", "virtiofs", "vmgenid",
	}
}

// Without these a machine works, with less.
func optionalModule(name string) bool {
	return name == "virtio_rng" || name == "virtiofs" || name == "vmgenid"
}

// kernelWork is one installation, in a directory of its own.
type kernelWork struct {
	s    *store
	dir  string // becomes the kernel's directory
	tmp  string // for all else; the archive's too
	arch string
	open []*os.File // the locks on both, and what is read until the end
}

func newKernelWork(s *store) (*kernelWork, error) {
	w := &kernelWork{s: s, arch: runtime.GOARCH}
	for _, d := range []*string{&w.dir, &w.tmp} {
		dir, lock, err := s.tempDir("kernel")
		if err != nil {
			w.close()
			return nil, err
		}
		*d, w.open = dir, append(w.open, lock)
	}
	return w, nil
}

func (w *kernelWork) close() {
	os.RemoveAll(w.dir)
	os.RemoveAll(w.tmp)
	for _, f := range w.open {
		f.Close()
	}
}

// install returns the directory of the kernel that from names, made now or before.
func (w *kernelWork) install(ctx context.Context, from, digest string, force bool) (string, error) {
	info, err := w.find(ctx, from, digest)
	if err != nil {
		return "", err
	}
	if old, ok := w.s.kernelFrom(info.SHA256, w.arch); ok && info.SHA256 != "" && !force {
		return old.Dir, w.s.useKernel(old.Dir, w.arch)
	}
	file, err := info.get(ctx)
	if err != nil {
		return "", err
	}
	if err := w.unpack(ctx, file, &info.kernelInfo); err != nil {
		return "", fmt.Errorf("unpack %s: %w", info.Source, err)
	}
	return w.publish(info.kernelInfo)
}

// A foundKernel is known by its digest, and fetched only if it is not there.
type foundKernel struct {
	kernelInfo
	get func(context.Context) (file string, err error)
}

func (w *kernelWork) find(ctx context.Context, from, digest string) (foundKernel, error) {
	found := foundKernel{kernelInfo: kernelInfo{Arch: w.arch, Source: from, SHA256: digest}}
	switch {
	case isURL(from):
		found.get = func(ctx context.Context) (string, error) { return w.fetch(ctx, from, digest) }
		return found, nil
	case from != "":
		return w.findFile(found)
	}
	found, err := w.findApt(ctx)
	if !errors.Is(err, errNoPackage) {
		return found, err
	}
	say.Note("%v: taking the kernel that this program names by its digest", err)
	return w.findPinned()
}

// findFile takes the digest of a file. Where the user gave one it must be that.
func (w *kernelWork) findFile(found foundKernel) (foundKernel, error) {
	file, err := filepath.Abs(found.Source)
	if err != nil {
		return found, err
	}
	sum, err := fileSHA256(file)
	if err != nil {
		return found, err
	}
	switch {
	case found.SHA256 == "":
		say.Warn("nothing vouches for %s: its sha256 is %s", found.Source, sum)
	case found.SHA256 != sum:
		return found, fmt.Errorf("%s has the sha256 %s, not %s", found.Source, sum, found.SHA256)
	}
	found.Source, found.SHA256 = file, sum
	found.get = func(context.Context) (string, error) { return file, nil }
	return found, nil
}

func fileSHA256(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// unpack writes vmlinux and modules.cpio. The file is hashed once more while it
// is read: what was checked is what is used.
func (w *kernelWork) unpack(ctx context.Context, file string, info *kernelInfo) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	r := io.TeeReader(reader{ctx, f}, h)
	image, modules, err := w.read(r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != info.SHA256 {
		return fmt.Errorf("the file has the sha256 %s, not %s", sum, info.SHA256)
	}
	k, err := vmlinux.Extract(image, w.arch)
	if err != nil {
		return err
	}
	if info.Version = vmlinux.Version(k); info.Version == "" {
		return errors.New("the kernel does not say which version it is")
	}
	if info.VmlinuxSHA256, err = w.writeFile("vmlinux", func(f io.Writer) error { _, err := f.Write(k); return err }); err != nil {
		return err
	}
	return w.writeModules(modules, info)
}

// read returns the kernel's image and its modules; a file that is no package
// has no modules.
func (w *kernelWork) read(r io.Reader) ([]byte, *kmod.Set, error) {
	spool, err := os.Create(filepath.Join(w.tmp, "modules"))
	if err != nil {
		return nil, nil, err
	}
	w.open = append(w.open, spool)
	set := kmod.NewSet(spool)
	head := make([]byte, 8)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.ErrUnexpectedEOF {
		return nil, nil, err
	}
	whole := io.MultiReader(bytes.NewReader(head[:n]), r)
	if !deb.Magic(head) {
		say.Warn("a kernel without its modules: it must have all that it needs built in")
		image, err := io.ReadAll(io.LimitReader(whole, vmlinux.MaxSize+1))
		return image, nil, err
	}
	var image []byte
	err = deb.Walk(whole, func(h *tar.Header, content io.Reader) (err error) {
		name := path.Clean("/" + h.Name)
		switch {
		case h.Typeflag != tar.TypeReg:
		case strings.HasPrefix(name, "/boot/vmlinu"):
			image, err = io.ReadAll(io.LimitReader(content, vmlinux.MaxSize+1))
		case kmod.IsModule(name):
			err = set.Add(name, content)
		case path.Base(name) == "modules.builtin":
			err = set.AddBuiltin(content)
		}
		return err
	})
	if err == nil && image == nil {
		err = errors.New("the package holds no kernel")
	}
	return image, set, err
}

func (w *kernelWork) writeModules(set *kmod.Set, info *kernelInfo) error {
	var order []*kmod.Module
	if set != nil {
		var missing []string
		var err error
		if order, missing, err = set.Plan(wantedModules()); err != nil {
			return err
		}
		for _, m := range missing {
			if !optionalModule(m) {
				return fmt.Errorf("the package has no module %s, and its kernel does not have it built in", m)
			}
		}
	}
	for _, m := range order {
		info.Modules = append(info.Modules, m.Name)
	}
	var err error
	info.ModulesSHA256, err = w.writeFile("modules.cpio", func(f io.Writer) error {
		c := cpio.NewWriter(f)
		c.Dir("modules", 0o755)
		for _, m := range order {
			c.File("modules/"+m.Name+".ko", 0o644, m.Size(), set.Code(m))
		}
		list := ""
		for _, m := range info.Modules {
			list += m + "\n"
		}
		c.File("modules/order", 0o644, int64(len(list)), strings.NewReader(list))
		return c.Close()
	})
	return err
}

// writeFile makes a file in the kernel's directory and returns its digest.
func (w *kernelWork) writeFile(name string, fill func(io.Writer) error) (string, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if err := fill(io.MultiWriter(f, h)); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), f.Sync()
}

// publish gives the finished directory its name. One of that name that is there
// already makes room.
func (w *kernelWork) publish(info kernelInfo) (string, error) {
	if _, err := w.writeFile("kernel.toml", func(f io.Writer) error { return toml.NewEncoder(f).Encode(info) }); err != nil {
		return "", err
	}
	dir := w.s.path("kernel", info.Version+"-"+info.SHA256[:12])
	if err := os.Rename(dir, filepath.Join(w.tmp, "old")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := os.Rename(w.dir, dir); err != nil {
		return "", err
	}
	if err := syncDir(w.s.path("kernel")); err != nil {
		return "", err
	}
	return dir, w.s.useKernel(dir, w.arch)
}

// reader ends with ctx.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
