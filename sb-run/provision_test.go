package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/session"
)

// unpacked is an entry of an archive that a guest was sent.
type unpacked struct{ Name, How, Text, Link string }

// unpacked is what guests were sent, but for git's file, which is the same in all.
func (s *stage) unpacked() []unpacked {
	return slices.DeleteFunc(noted[unpacked](s, "unpacked"), func(u unpacked) bool { return u.Name == gitFile })
}

// archive keeps what is to be unpacked, and hands over the file packed beside it.
func (s *standIn) archive(c session.Command, sv *session.Served) {
	if c.Pack != nil {
		if s.will("never-packs") {
			note(filepath.Join(s.dir, "asked"), "to pack")
			sv.Input()
			return
		}
		text, _ := os.ReadFile(filepath.Join(s.dir, "packed"))
		sv.Stdout().Write(text)
		sv.Exit(session.Status{})
		return
	}
	var text []byte
	for {
		in, err := sv.Input()
		if err != nil {
			return
		}
		if in.EOF {
			break
		}
		text = append(text, in.Stdin...)
	}
	for archive := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := archive.Next()
		if err != nil {
			break
		}
		b, _ := io.ReadAll(archive)
		note(filepath.Join(s.dir, "unpacked"), unpacked{h.Name, fmt.Sprintf("%04o%s", h.Mode, h.PAXRecords[session.UnpackHow]), string(b), h.Linkname})
	}
	sv.Exit(session.Status{})
}

// profile writes one of the user's own.
func (s *stage) profile(name, text string) {
	s.t.Helper()
	dir := filepath.Join(s.home, "config", "agents")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	os.Chmod(filepath.Join(s.home, "config"), 0o700)
	if err := os.WriteFile(filepath.Join(dir, name+".toml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

const provisioned = `image = ["img"]
[[file]]
path = "~/a b"
text = '''$HOME "x" ` + "`y`" + `'''
[[file]]
path = "/usr/local/bin/tool"
mode = "0755"
text = "#!/bin/sh\n"
[[file]]
path = "/big"
text = "BIG"
[[startup]]
run = ["sh", "-c", "echo one; exit 3"]
[[startup]]
run = '''
# the second
echo two >>"$OUT"
'''
[[startup]]
run = "echo up >>$OUT; sleep 600"
background = true
`

// TestProvision: files go first, whole, whatever is in them and however long they
// are; then startup commands, in order, of which one that fails is told of and ends
// nothing. A manifest that was printed does the same.
func TestProvision(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	long := strings.Repeat("x", 200<<10)
	s.profile("mine", strings.Replace(provisioned, "BIG", long, 1))
	for _, target := range []string{"mine", "printed.toml"} {
		out := filepath.Join(s.work, "out")
		os.Remove(out)
		os.Remove(filepath.Join(s.dir, "unpacked"))
		got := s.run(append([]string{target}, map[string][]string{
			"mine":         {"-e", "OUT=" + out, "--", "sh", "-c", `until grep -q up "$OUT"; do sleep 0.05; done; cat "$OUT"`},
			"printed.toml": {},
		}[target]...)...)
		got.want(t, 0, "startup 1 (sh -c echo one; exit 3) ended with 3\n", "| one\n", "!startup 2", "!startup 3")
		if got.stdout != "two\nup\n" {
			t.Errorf("%s: the startup commands wrote %q", target, got.stdout)
		}
		want := []unpacked{{"a b", "0644", "$HOME \"x\" `y`", ""}, {"/usr/local/bin/tool", "0755", "#!/bin/sh\n", ""}, {"/big", "0644", long, ""}}
		if all := s.unpacked(); !slices.Equal(all, want) {
			t.Errorf("%s: unpacked %.300v", target, all)
		}
		if target == "mine" {
			m := s.run("mine", "--print", "-e", "OUT="+out, "--", "sh", "-c", `until grep -q up "$OUT"; do sleep 0.05; done; cat "$OUT"`)
			if err := os.WriteFile(filepath.Join(s.work, "printed.toml"), []byte(m.stdout), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBadProvision: what cannot be is told with the profile's name.
func TestBadProvision(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for text, want := range map[string]string{
		"[[file]]\npath = \"x\"\ntext = \"\"":                             `file 1: "x" is neither an absolute path`,
		"[[file]]\npath = \"~/../x\"\ntext = \"\"":                        `file 1: "~/../x" is neither`,
		"[[file]]\npath = \"/x\"\nmode = \"4755\"\ntext = \"\"":           `file 1: /x: mode "4755" is none`,
		"[[file]]\npath = \"/x\"\nmode = \"rw\"\ntext = \"\"":             `mode "rw" is none`,
		"[[file]]\npath = \"/x\"\nmerge = true\ntext = \"[]\"":            "no object in JSON",
		"[[startup]]\nrun = []":                                           "startup 1: run: it names no program",
		"[[startup]]\nrun = \" \"":                                        "the script is empty",
		"[[startup]]\nrun = 7":                                            "neither a script nor a list",
		"[[startup]]\nrun = \"" + strings.Repeat("x", 70<<10) + "\"":      "at most 65536 go to the guest\nsb-run: hint: put what is long into a [[file]]",
		"[[startup]]\nrun = [\"true\"]\nbackground = false\nuser = \"x\"": "unknown key startup.user",
	} {
		s.profile("bad", "image = [\"img\"]\n"+text+"\n")
		s.run("bad", "--", "true").want(t, 125, want)
	}
	s.profile("bad", "image = [\"img\"]\n[[startup]]\nrun = \"true\"\n")
	s.run("bad", "--", "true").want(t, 0, "!error")
}

// TestWords: both forms of a command come to the same.
func TestWords(t *testing.T) {
	var r struct {
		Startup []manifest.Startup `toml:"startup"`
	}
	if err := manifest.Decode("f", []byte("[[startup]]\nrun = \"echo\"\n[[startup]]\nrun = [\"/bin/sh\", \"-euc\", \"echo\"]\n"), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Startup) != 2 || !slices.Equal(r.Startup[0].Run, r.Startup[1].Run) {
		t.Errorf("%+v", r.Startup)
	}
}
