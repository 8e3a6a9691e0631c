package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A module as sb-vm is one: a platform is a file, macOS's calls C.
var clean = map[string]string{
	"go.mod":      "module example.test/m\n\ngo 1.26.0\n",
	"a.go":        "package m\n\nimport \"example.test/m/inner\"\n\nvar Handle = open(inner.Name)\n",
	"b_linux.go":  "package m\n\nfunc open(name string) uintptr { return 0 }\n",
	"b_darwin.go": "package m\n\n// #include <stdlib.h>\nimport \"C\"\n\nfunc open(name string) uintptr { return uintptr(C.open(C.CString(name))) }\n",
	"a_test.go":   "package m\n\nimport \"testing\"\n\nfunc TestOpen(t *testing.T) { _ = open(\"\") }\n",
	"inner/i.go":  "package inner\n\nconst Name = \"x\"\n",
}

// module writes the clean module with some files replaced and makes it the
// current directory.
func module(t *testing.T, replaced map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for _, files := range []map[string]string{clean, replaced} {
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
}

// Each fault is one of macOS's alone; none is there in the clean module.
func TestFaults(t *testing.T) {
	var out, errs bytes.Buffer
	module(t, nil)
	if code := run(nil, &out, &errs); code != 0 || out.Len() > 0 {
		t.Fatalf("a clean module: exit code %d\n%s%s", code, &out, &errs)
	}
	module(t, map[string]string{
		"b_linux.go":         "package m\n\nfunc open(name int) {}\n", // not macOS's
		"b_darwin.go":        "package m\n",
		"a_test.go":          "package m\n\nvar x int = \"\"\n",
		"arg/a_darwin.go":    "package arg\n\nimport \"C\"\n\nvar x = f(int64(1)) + uint64(C.f())\n\nfunc f(n uint64) uint64 { return n }\n",
		"body/b_darwin.go":   "package body\n\nimport \"os\"\n\nfunc f() { os.Stdin.Handle() }\n",
		"gone/g_darwin.go":   "package gone\n\nimport _ \"example.test/other\"\n",
		"lost/l_darwin.go":   "package lost\n\nimport \"example.test/m/inner\"\n\nvar x = inner.Lost\n",
		"syntax/s_darwin.go": "package syntax\n\nfunc f() {\n",
	})
	want := []string{
		"a.go:5:14: undefined: open",
		"a_test.go:3:13: cannot use",
		"arg/a_darwin.go:5:11: cannot use int64(1)",
		"body/b_darwin.go:5:21: os.Stdin.Handle undefined",
		"gone/g_darwin.go:3:10: could not import example.test/other",
		"lost/l_darwin.go:5:15: undefined: inner.Lost",
		"syntax/s_darwin.go:3:12: expected '}'",
	}
	if code := run(nil, &out, &errs); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	said := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, w := range want {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, w) }) {
			t.Errorf("no line %s…", w)
		}
	}
	for _, s := range said {
		if !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(s, w) }) {
			t.Errorf("too much: %s", s)
		}
	}
}

// Where it cannot look it does not say that all is well.
func TestCannotLook(t *testing.T) {
	for what, c := range map[string]struct {
		files map[string]string
		args  []string
	}{
		"no such package":    {nil, []string{"./nowhere/..."}},
		"a flag":             {nil, []string{"-no-such-flag"}},
		"a broken go.mod":    {map[string]string{"go.mod": "modul x\n"}, nil},
		"nothing for darwin": {map[string]string{"only/x_linux.go": "package only\n"}, []string{"./only"}},
	} {
		t.Run(what, func(t *testing.T) {
			module(t, c.files)
			var out, errs bytes.Buffer
			if code := run(c.args, &out, &errs); code == 0 || code == 2 && errs.Len() == 0 {
				t.Errorf("exit code %d\n%s%s", code, &out, &errs)
			}
		})
	}
}
