package profile

import (
	"embed"
	"io/fs"
	"os"
)

//go:embed builtin/*.toml
var builtin embed.FS

// place is a directory of profiles.
type place struct {
	files fs.FS
	dir   string // "": built in
}

// places are where profiles lie, those that count first.
func (s Set) places() []place {
	files, err := fs.Sub(builtin, "builtin")
	if err != nil {
		panic(err) // the name is no path
	}
	all := []place{{files, ""}}
	if s.own != "" {
		all = append([]place{{os.DirFS(s.own), s.own}}, all...)
	}
	return all
}
