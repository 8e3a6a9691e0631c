package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"sb/sb-image/flatten"
)

// endless is what one can wait for the end of for ever.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.read += int64(len(p))
	if e.read > 64*flatten.MaxBehind {
		return 0, io.ErrNoProgress // the test has failed
	}
	return len(p), nil
}

// TestEndlessArchive: what follows the end of an archive is bounded, compressed or not,
// and so is what follows a broken one; one that is filled up is kept.
func TestEndlessArchive(t *testing.T) {
	good := tarOf(t, reg("etc/name", "x", 0o644))
	filled := append(bytes.Clone(good), make([]byte, 1<<20)...)
	packedEndless := func() io.Reader {
		r, w := io.Pipe()
		go func() {
			z := gzip.NewWriter(w)
			z.Write(good)
			io.Copy(z, &endless{})
			w.Close()
		}()
		return r
	}
	for _, c := range []struct {
		name    string
		archive io.Reader
		want    string // "": it is kept
	}{
		{"good", bytes.NewReader(good), ""},
		{"filled up", bytes.NewReader(filled), ""},
		{"endless", io.MultiReader(bytes.NewReader(good), &endless{}), "more than 16 MiB follow the end"},
		{"endless, packed", packedEndless(), "more than 16 MiB follow the end"},
		{"endless behind what is no archive", io.MultiReader(strings.NewReader(strings.Repeat("x", 512)), &endless{}), "read its tar archive"},
	} {
		s := newStore(t)
		name, err := parseRef("env:test")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = s.take(context.Background(), name, runConfig{}, c.archive)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v after %v, want %q", c.name, err, time.Since(began), c.want)
		}
	}
}
