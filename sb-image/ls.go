package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"sb/lib/say"
	"sb/lib/template"
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
	flags := say.Flags("sb-image ls", "[--json]", `
Lists the images in the store, one a line, by their references, and then the
saved machines, if there are any, the last used first.`)
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
	saved, err := savedMachines()
	if err != nil {
		return err
	}
	if *asJSON {
		out := say.JSON(os.Stdout)
		for _, l := range all {
			if err := out.Encode(l); err != nil {
				return err
			}
		}
		for _, l := range saved {
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
	if len(saved) > 0 {
		fmt.Fprintln(out, "\nTEMPLATE\tCPUS, MEMORY\tIMAGE\tSIZE\tLAST USED")
	}
	for _, l := range saved {
		fmt.Fprintf(out, "%.12s\t%s, %s\t%.19s\t%s\t%s\n", l.Template, say.Safe(l.CPUs), say.Safe(l.Memory), say.Safe(l.Image), megabytes(l.Size), l.Used.Format(time.DateTime))
	}
	return out.Flush()
}

// savedMachine is one line of ls about a template.
type savedMachine struct {
	Template string    `json:"template"` // its key
	Image    string    `json:"image"`    // the digest of its image
	CPUs     string    `json:"cpus"`
	Memory   string    `json:"memory"`
	Size     int64     `json:"size"` // on the disk, in bytes
	Used     time.Time `json:"used"` // last
}

func savedMachines() (all []savedMachine, err error) {
	store, err := template.Open()
	if err != nil {
		return nil, err
	}
	templates, err := store.List()
	for _, t := range templates {
		m := savedMachine{Template: t.Key, Size: t.Bytes, Used: t.Used}
		for _, in := range t.Inputs {
			switch in.Name {
			case "cpus":
				m.CPUs = in.Value
			case "memory":
				m.Memory = in.Value
			case "image":
				m.Image = "sha256:" + strings.TrimSuffix(filepath.Base(in.File), ".erofs")
			}
		}
		all = append(all, m)
	}
	return all, err
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
