package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"text/tabwriter"
	"time"

	"sb/lib/say"
)

// listed is one line of ls: a reference, or an image that none stands for.
type listed struct {
	Ref      string     `json:"ref"` // "" without one
	Platform string     `json:"platform"`
	Digest   string     `json:"digest"`
	Size     int64      `json:"size"`   // on the disk, in bytes
	Pulled   *time.Time `json:"pulled"` // null without a reference
}

func runLs(args []string) error {
	flags := say.Flags("sb-image ls", "[--json]", "Lists the images in the store, one a line, by their references.")
	asJSON := flags.Bool("json", false, "print one JSON object a line")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("ls takes no argument, not %q", flags.Arg(0))
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	all, err := s.list()
	if err != nil {
		return err
	}
	if *asJSON {
		out := json.NewEncoder(os.Stdout)
		for _, l := range all {
			if err := out.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "REF\tPLATFORM\tDIGEST\tSIZE")
	for _, l := range all {
		name := l.Ref
		if name == "" {
			name = "-"
		}
		fmt.Fprintf(out, "%s\t%s\t%.19s\t%s\n", say.Safe(name), l.Platform, l.Digest, megabytes(l.Size))
	}
	return out.Flush()
}

func (s *store) list() ([]listed, error) {
	refs, err := s.refs()
	if err != nil {
		return nil, err
	}
	var all []listed
	named := map[string]bool{}
	for _, r := range refs {
		if _, err := s.image(r.Digest); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		named[r.Digest] = true
		all = append(all, listed{r.Ref, r.Platform, r.Digest, diskUse(s.imageFile(r.Digest, "erofs")), &r.Pulled})
	}
	digests, err := s.images()
	if err != nil {
		return nil, err
	}
	for _, d := range digests {
		if rec, err := s.image(d); err == nil && !named[d] {
			all = append(all, listed{"", rec.Platform, d, diskUse(s.imageFile(d, "erofs")), nil})
		}
	}
	return all, nil
}
