package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"sb/lib/say"
)

// maxPackage bounds a download, in bytes. Debian's kernel with every driver has 70 MiB.
const maxPackage = 1 << 30

// pinned is the kernel for machines without apt: Debian's, from its archive of
// all that it ever published, where a file is named by its SHA-1. The SHA-256
// is what vouches for it.
type pinned struct{ name, sha1, sha256 string }

const pinnedArchive = "https://snapshot.debian.org/file/"

func pinnedKernels() map[string]pinned {
	return map[string]pinned{
		"amd64": {
			"linux-image-6.1.0-57-cloud-amd64_6.1.192-3_amd64.deb",
			"c012d284d480c5bc14b557fa314d97b1dd7615c1",
			"4fdd0172a8c3f41a97e92465b2ac1867e1c10d82d7aeed3d26ee7a5d14df1754",
		},
		"arm64": {
			"linux-image-6.1.0-57-cloud-arm64_6.1.192-3_arm64.deb",
			"7a4f4cfa6823b8af65aa5afa3e9000d82f129680",
			"51952bf54e96b0bc6263fb51a47b79e206dca0213cd5421162bc55cddbd6e51e",
		},
	}
}

func (w *kernelWork) findPinned() (foundKernel, error) {
	p, ok := pinnedKernels()[w.arch]
	if !ok {
		return foundKernel{}, fmt.Errorf("no kernel is known for %s", w.arch)
	}
	url := pinnedArchive + p.sha1
	return foundKernel{
		kernelInfo: kernelInfo{Arch: w.arch, Source: url + " " + p.name, SHA256: p.sha256},
		get:        func(ctx context.Context) (string, error) { return w.fetch(ctx, url, p.sha256) },
	}, nil
}

// fetch downloads url and returns the file, if it has the digest.
func (w *kernelWork) fetch(ctx context.Context, url, digest string) (string, error) {
	say.Note("fetching %s", url)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", say.WithHint(err, "fetch it on another machine, and: sb-image kernel install --from FILE --sha256 %s", digest)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetch %s: the server answers %s", url, resp.Status)
	}
	f, err := os.Create(filepath.Join(w.tmp, "download"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(resp.Body, maxPackage+1))
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", url, err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != digest || n > maxPackage {
		return "", fmt.Errorf("fetch %s: what came (%d bytes) has the sha256 %s, not %s", url, n, sum, digest)
	}
	return f.Name(), nil
}
