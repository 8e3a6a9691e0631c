package main

import (
	"context"
	"io"
	"os"
)

// openTar takes a tar archive of a root file system for an image of one layer.
func openTar(file string) (*source, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	open := func(context.Context) (io.ReadCloser, error) { return os.Open(file) }
	return &source{layers: []layer{{name: file, size: st.Size(), open: open}}}, nil
}
