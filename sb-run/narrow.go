package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/say"
)

// limit narrows a machine and what its guest is given of the workspace, and says where
// that is against a flag.
func (p *project) limit(m *manifest.Manifest, o *options) error {
	if p == nil {
		return nil
	}
	m.Machine.CPUs = ceiling(p, "cpus", m.Machine.CPUs, o.cpus, p.CPUs)
	m.Machine.Memory = ceiling(p, "memory", m.Machine.Memory, o.memory, p.Memory)
	m.Machine.DiskSize = ceiling(p, "disk", m.Machine.DiskSize, o.disk, p.Disk)
	for i := range m.Shares {
		if s := &m.Shares[i]; s.Host == o.workspace || m.Run.Clone != nil && s.Guest == m.Run.Clone.Source {
			for _, q := range append([]*project{p}, p.above...) {
				if err := q.narrow(s, m); err != nil {
					return fmt.Errorf("%s: %w", q.path, err)
				}
			}
		}
	}
	return nil
}

// ceiling is what the machine has of something: no more than most, which is 0 for no
// bound; by the flag it was to have asked.
func ceiling[N int | manifest.Size](p *project, what string, has, asked, most N) N {
	if most == 0 || has <= most {
		return has
	}
	if asked > most {
		say.Note("--%s: the machine has %v, which is the most by %s", what, most, strings.Join(p.files(), ", "))
	}
	return most
}

// narrow narrows a share of the workspace.
func (p *project) narrow(s *manifest.Share, m *manifest.Manifest) error {
	if m.Run.Clone != nil && !m.Run.Clone.Copy {
		if len(p.Workspace.Hide) > 0 {
			say.Warn("%s hides %s: what is committed of it is in the clone all the same", p.path, strings.Join(p.Workspace.Hide, ", "))
		}
		return nil
	}
	readOnly := p.Workspace.ReadOnly
	for _, pattern := range p.Workspace.Protect {
		rest, whole := below(pattern, filepath.Dir(p.path), s.Host)
		if readOnly = readOnly || whole; rest != "" && !slices.Contains(s.Protected, rest) {
			s.Protected = append(s.Protected, rest)
		}
	}
	for _, pattern := range p.Workspace.Hide {
		rest, whole := below(pattern, filepath.Dir(p.path), s.Host)
		if whole {
			return say.WithHint(fmt.Errorf("it hides %s, which is the workspace", s.Host), "work in another directory, or change hide")
		}
		if rest != "" && !slices.Contains(s.Hidden, rest) {
			s.Hidden = append(s.Hidden, rest)
		}
	}
	if s.ReadOnly = s.ReadOnly || readOnly; s.ReadOnly {
		for _, dir := range s.Private {
			if _, err := os.Lstat(filepath.Join(s.Host, dir)); err != nil {
				return say.WithHint(fmt.Errorf("the workspace is read-only, and the private directory %s cannot be made in it: %w", dir, err), "make it, or leave --private out")
			}
		}
	}
	return nil
}

// below is what a pattern about top is about dir, which usually lies below it: ""
// if it is about nothing there, whole if it is about dir itself or what it lies in.
func below(pattern, top, dir string) (rest string, whole bool) {
	rel, err := filepath.Rel(top, dir)
	if err != nil || rel == "." {
		return pattern, false
	}
	if up, ok := strings.CutPrefix(top, dir+"/"); ok { // what is copied may be more than top
		if strings.Contains(pattern, "/") {
			pattern = "/" + keep.Escape(up) + "/" + strings.Trim(pattern, "/")
		}
		return pattern, false
	}
	names := strings.Split(strings.ToLower(rel), "/")
	parts := strings.Split(strings.Trim(pattern, "/"), "/")
	matches := func(i, j int) bool {
		ok, _ := path.Match(strings.ToLower(parts[i]), names[j])
		return ok
	}
	if !strings.Contains(pattern, "/") {
		for j := range names {
			whole = whole || matches(0, j)
		}
		return pattern, whole
	}
	for j := range names {
		if j == len(parts) {
			return "", true
		}
		if !matches(j, j) {
			return "", false
		}
	}
	if len(parts) == len(names) {
		return "", true
	}
	return "/" + strings.Join(parts[len(names):], "/"), false
}
