package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// parallel is how many layers are fetched at a time, as in Docker.
const parallel = 3

// maxTries is how often a layer is asked for whose transfer broke off.
const maxTries = 3

// errFetch is a layer that did not come: the others are worth keeping.
var errFetch = errors.New("fetch it")

// prefetch makes the layers of an image come into the store, several at a time,
// while the first are flattened. What has come whole stays if the pull breaks
// off, so the next one goes on from there.
type prefetch struct {
	blobs []*blob
	begun bool
}

// prefetch puts the layers of src on their way.
func (r *registry) prefetch(src *source) error {
	s, err := openStore()
	if err != nil {
		return err
	}
	src.coming = &prefetch{}
	byDigest := map[string]*blob{}
	for n := range src.layers {
		l := &src.layers[n]
		b := byDigest[l.digest]
		if b == nil {
			b = &blob{s: s, digest: l.digest, size: l.size, open: l.open, done: make(chan struct{})}
			byDigest[l.digest] = b
			src.coming.blobs = append(src.coming.blobs, b)
		}
		l.open, l.counted = b.wait, true
	}
	return nil
}

// start begins to fetch. It ends early with ctx.
func (f *prefetch) start(ctx context.Context, p *progress) {
	f.begun = true
	go fetchAll(ctx, f.blobs, p)
}

// drop forgets what was fetched.
func (f *prefetch) drop() {
	for _, b := range f.blobs {
		<-b.done
		os.Remove(b.name())
	}
}

// close waits until nothing is under way any more.
func (f *prefetch) close() {
	if !f.begun {
		return
	}
	for _, b := range f.blobs {
		<-b.done
		b.file.Close()
	}
}

func fetchAll(ctx context.Context, blobs []*blob, p *progress) {
	places := make(chan struct{}, parallel)
	for _, b := range blobs {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			b.err = ctx.Err()
			close(b.done)
			continue
		}
		go func() {
			b.fetch(ctx, p)
			<-places
		}()
	}
}

// blob is a layer on its way into blobs/. It is held open, with a lock on it, so
// that gc leaves it there.
type blob struct {
	s      *store
	digest string
	size   int64
	open   func(context.Context) (io.ReadCloser, error)
	done   chan struct{} // closed when file is there, or err is set
	file   *os.File
	err    error
}

func (b *blob) name() string { return b.s.path("blobs", strings.TrimPrefix(b.digest, "sha256:")) }

// wait opens the layer when it has come.
func (b *blob) wait(ctx context.Context) (io.ReadCloser, error) {
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.err != nil {
		return nil, fmt.Errorf("%w: %w", errFetch, b.err)
	}
	return io.NopCloser(io.NewSectionReader(b.file, 0, b.size)), nil
}

func (b *blob) fetch(ctx context.Context, p *progress) {
	defer close(b.done)
	if b.file = b.here(); b.file != nil {
		p.add(b.size)
		return
	}
	for try := 1; ; try++ {
		got, err := b.once(ctx, p)
		// Only what began to come is worth another try; the client below has
		// tried the rest already.
		if err == nil || try == maxTries || got == 0 || got >= b.size || ctx.Err() != nil {
			b.err = err
			return
		}
		p.add(-got)
	}
}

// here returns the layer if a pull before this one fetched it.
func (b *blob) here() *os.File {
	f, err := os.Open(b.name())
	if err != nil {
		return nil
	}
	sum := sha256.New()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil && samePath(f) {
		if n, err := io.Copy(sum, f); err == nil && n == b.size && "sha256:"+hex.EncodeToString(sum.Sum(nil)) == b.digest {
			return f
		}
	}
	f.Close()
	return nil
}

// once copies the layer into the store, where it appears only if it is whole and right.
func (b *blob) once(ctx context.Context, p *progress) (int64, error) {
	r, err := b.open(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	t, err := b.s.temp("blob")
	if err != nil {
		return 0, err
	}
	sum := sha256.New()
	got, err := io.Copy(io.MultiWriter(t, sum), p.reader(io.LimitReader(reader{ctx, r}, b.size+1)))
	is := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	switch {
	case err != nil:
	case is != b.digest || got != b.size:
		err = fmt.Errorf("it is corrupt: %d bytes came with the digest %s, instead of %d", got, is, b.size)
	default:
		err = t.publish(b.name())
	}
	if err != nil {
		t.discard()
		return got, err
	}
	// Another pull may use it too from now on.
	b.file = t.File
	return got, unix.Flock(int(t.Fd()), unix.LOCK_SH)
}
