//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
)

// mergeFile is the file of settings at path after the change that comes, an object
// in JSON as of RFC 7386; nil if nothing is to be written. A file that cannot be
// read as what its name says is an error: what it says would be lost.
func mergeFile(path string, change io.Reader) (io.Reader, error) {
	var patch map[string]any
	if err := number(change, &patch); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	isTOML := strings.HasSuffix(path, ".toml")
	settings := map[string]any{}
	switch {
	case len(bytes.TrimSpace(text)) == 0:
	case isTOML:
		err = toml.Unmarshal(text, &settings)
	default:
		err = number(bytes.NewReader(text), &settings)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("merge into it: %w", err)
	}
	merge(settings, patch)
	if len(text) == 0 && len(settings) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	if isTOML {
		err = toml.NewEncoder(&out).Encode(settings)
	} else {
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(settings)
	}
	return &out, err
}

// number reads JSON whose numbers stay as they are written.
func number(in io.Reader, to any) error {
	d := json.NewDecoder(in)
	d.UseNumber()
	return d.Decode(to)
}

// merge changes an object as RFC 7386 has it: null takes a member away, an object
// is merged into the one there, and anything else takes its place.
func merge(into, change map[string]any) {
	for key, value := range change {
		sub, ok := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok:
			there, ok := into[key].(map[string]any)
			if !ok {
				there = map[string]any{}
			}
			if merge(there, sub); len(there) > 0 || into[key] != nil || len(sub) == 0 {
				into[key] = there
			}
		default:
			into[key] = value
		}
	}
}
