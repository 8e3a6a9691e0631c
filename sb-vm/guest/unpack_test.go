//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/session"
)

// TestMergeFile: a change is RFC 7386's; what it does not name stays, a file that
// cannot be read is not lost, and a change that is none makes no file.
func TestMergeFile(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, before, change, want, err string }{
		{"a.json", `{"n":12345678901234567890,"a":{"b":1,"c":"<&>"},"gone":[1]}`, `{"a":{"b":{"d":[2]},"x":null},"gone":null,"new":{"y":null,"z":true}}`,
			"{\n  \"a\": {\n    \"b\": {\n      \"d\": [\n        2\n      ]\n    },\n    \"c\": \"<&>\"\n  },\n  \"n\": 12345678901234567890,\n  \"new\": {\n    \"z\": true\n  }\n}\n", ""},
		{"none.json", "", `{"a":{"x":null}}`, "", ""},
		{"new.json", "", `{"a":1}`, "{\n  \"a\": 1\n}\n", ""},
		{"a.toml", "model = \"m\"\n[mcp_servers.old]\ncommand = \"x\"\n[other]\nn = 7\n", `{"mcp_servers":{"old":null,"git":{"command":"git","args":["a b"]}}}`,
			"model = \"m\"\n\n[mcp_servers]\n  [mcp_servers.git]\n    args = [\"a b\"]\n    command = \"git\"\n\n[other]\n  n = 7\n", ""},
		{"bad.json", `{"a":`, `{"a":1}`, "", "merge into it: "},
		{"bad.toml", `=`, `{"a":1}`, "", "merge into it: "},
		{"list.json", `[]`, `{"a":1}`, "", "merge into it: "},
	} {
		path := filepath.Join(dir, c.name)
		if c.before != "" {
			if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := mergeFile(path, strings.NewReader(c.change))
		text := []byte{}
		if got != nil {
			text, _ = io.ReadAll(got)
		}
		if string(text) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v, want %q, %q", c.name, text, err, c.want, c.err)
		}
	}
}

// TestUnpack: files are whole, with their modes; one to keep stays, another takes
// the place of what is there and does not follow a link; pack gives back what was
// unpacked, without what is to stay.
func TestUnpack(t *testing.T) {
	home := t.TempDir()
	c := session.Command{User: "0:0", Env: map[string]string{"HOME": home}}
	outside := filepath.Join(t.TempDir(), "outside")
	for path, text := range map[string]string{outside: "outside", filepath.Join(home, "kept"): "mine"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(home, "link")); err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, f := range []struct{ name, how, text string }{{"d/e/x y", "", "$a `b` \"c\""}, {"kept", session.UnpackKeep, "theirs"}, {"link", "", "new"}, {"d/auth.json", "", "p"}} {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o750, Size: int64(len(f.text)), Format: tar.FormatPAX}
		if f.how != "" {
			h.PAXRecords = map[string]string{session.UnpackHow: f.how}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, f.text)
	}
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "d/in", Linkname: "e/x y"})
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "d/out", Linkname: "../../etc/passwd"})
	w.Close()
	if err := unpack(c, &in, io.Discard); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"d/e/x y": "$a `b` \"c\"", "kept": "mine", "link": "new", "d/in": "$a `b` \"c\""} {
		if got, err := os.ReadFile(filepath.Join(home, path)); string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if got, _ := os.ReadFile(outside); string(got) != "outside" {
		t.Errorf("what a link led to: %q", got)
	}
	if st, err := os.Stat(filepath.Join(home, "d/e/x y")); err != nil || st.Mode() != 0o750 {
		t.Errorf("%v, %v", st, err)
	}
	var out bytes.Buffer
	c.Pack = &session.Pack{Paths: []string{"d", "kept", "none"}, Leave: []string{"auth.*", "d/none"}}
	if err := pack(c, &out); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name+h.Linkname)
	}
	if got := strings.Join(names, " "); got != "d/ d/e/ d/e/x y d/ine/x y kept" {
		t.Errorf("packed %q", got)
	}
}

// TestInTheWay: what an earlier sandbox left where a file is to be written, or what it
// made of settings, is moved aside, and told of; what is in order stays.
func TestInTheWay(t *testing.T) {
	home := t.TempDir()
	c := session.Command{User: "0:0", Env: map[string]string{"HOME": home}}
	for name, text := range map[string]string{"file": "", "set/bad.json": "{", "set/good.json": `{"b":2}`, "dir.json/x": "", "bad2.json": "[", "bad2.json.aside": "older"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(home, "dangling")); err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, name := range []string{"file/x/a.json", "set/bad.json", "set/good.json", "dir.json", "bad2.json", "dangling/a.json", "~/absolute", "new/a.json"} {
		how := map[string]string{session.UnpackHow: session.UnpackMerge}
		if name == "~/absolute" {
			name, how = filepath.Join(home, "file2/y"), nil
		}
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: 7, Format: tar.FormatPAX, PAXRecords: how})
		io.WriteString(w, `{"a":1}`)
	}
	w.Close()
	var said bytes.Buffer
	if err := unpack(c, &in, &said); err != nil {
		t.Fatal(err)
	}
	const merged = "{\n  \"a\": 1\n}\n"
	for name, want := range map[string]string{"file/x/a.json": merged, "file.aside": "", "set/bad.json": merged, "set/bad.json.aside": "{", "set/good.json": "{\n  \"a\": 1,\n  \"b\": 2\n}\n",
		"dir.json": merged, "dir.json.aside/x": "", "bad2.json": merged, "bad2.json.aside": "older", "bad2.json.aside2": "[", "dangling/a.json": merged, "new/a.json": merged, "file2/y": `{"a":1}`} {
		if got, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if n := strings.Count(said.String(), " now: "); n != 5 {
		t.Errorf("told of %d: %s", n, said.String())
	}
}
