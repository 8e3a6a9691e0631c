package undo

import (
	"context"
	"errors"
	"fmt"
)

// Damage is a file of a record whose bytes the store does not have any more.
type Damage struct {
	Path string
	Err  error
}

// Verify reads all bytes of a record and compares them with their digests.
func (s *Store) Verify(ctx context.Context, r *Record) (damaged []Damage, err error) {
	seen := map[Digest]error{}
	for i := range r.Entries {
		e := &r.Entries[i]
		if e.Kind != File {
			continue
		}
		bad, done := seen[e.Digest]
		if !done {
			bad = s.verify(ctx, e)
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			seen[e.Digest] = bad
		}
		if bad != nil {
			damaged = append(damaged, Damage{e.Path, bad})
		}
	}
	return damaged, nil
}

func (s *Store) verify(ctx context.Context, e *Entry) error {
	f, err := s.open(e)
	if err != nil {
		return err
	}
	defer f.Close()
	d, _, err := digestOf(ctx, f, e.Size)
	switch {
	case errors.Is(err, errChanged):
		return fmt.Errorf("the store has not the %d bytes that it had", e.Size)
	case err == nil && d != e.Digest:
		return errors.New("the store has other bytes than it had")
	}
	return err
}
