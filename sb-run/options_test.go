package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/say"
)

// TestOptions: every flag, in each form that it has.
func TestOptions(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HERE", "there")
	for _, c := range []struct {
		args string
		want options
	}{
		{"img", options{}},
		{"img -- a -b", options{command: []string{"a", "-b"}}},
		{"img --", options{}},
		{"--cpus 3 img", options{cpus: 3}},
		{"img --allow a --allow=b --deny c", options{rules: manifest.Rules{Allow: []string{"a", "b"}, Deny: []string{"c"}}}},
		{"img --allow a,b", options{rules: manifest.Rules{Allow: []string{"a,b"}}}}, // one rule, which is a bad one
		{"img -e A=b --env C=d=e -e HERE -e NOT_HERE -e E=", options{env: map[string]string{"A": "b", "C": "d=e", "HERE": "there", "E": ""}}},
		{"img -w D", options{workspace: dir}},
		{"img --workspace=D", options{workspace: dir}},
		{"img --workdir /a/b", options{workdir: "/a/b"}},
		{"img -v D:/x -v D:/y/:ro --mount D:/z:rw", options{mounts: []manifest.Share{{Host: dir, Guest: "/x"}, {Host: dir, Guest: "/y", ReadOnly: true}, {Host: dir, Guest: "/z"}}}},
		{"img --memory 512m --disk 2g", options{memory: 512 << 20, disk: 2 << 30}},
		{"img --user 1000:100", options{user: "1000:100"}},
		{"img --accel tcg", options{accel: "tcg"}},
		{"img -it", options{interactive: true, tty: true}},
		{"img --no-tty", options{noTTY: true}},
		{"img --terminal raw", options{terminal: "raw"}},
		{"img --show-policy-log --no-input", options{showLog: true, noInput: true}},
		{"img --print", options{print: "toml"}},
		{"img --print=sh", options{print: "sh"}},
	} {
		o, err := parseOptions(strings.Fields(strings.ReplaceAll(c.args, "D", dir)))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if len(o.command) == 0 {
			o.command = nil
		}
		if len(o.env) == 0 {
			o.env = nil
		}
		o.target, o.changes = "", nil
		if len(o.rules.Allow) == 0 {
			o.rules.Allow = nil
		}
		if len(o.rules.Deny) == 0 {
			o.rules.Deny = nil
		}
		if !reflect.DeepEqual(*o, c.want) {
			t.Errorf("%s: %+v, want %+v", c.args, *o, c.want)
		}
	}
}

// TestBadOptions: a mistake is told by the name of its flag, with what to do.
func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("A=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string // the error and its hint
	}{
		{nil, "sb-run needs a target; sb-run shell runs"},
		{[]string{"--", "ls"}, "sb-run needs a target; "},
		{[]string{""}, "the target is an empty word; "},
		{[]string{"img", "ls", "x"}, `"ls" is one word too many; put the command behind --: sb-run img -- ls x`},
		{[]string{"img", "ls", "-l"}, "unknown shorthand flag: 'l' in -l; sb-run --help"},
		{[]string{"img", "--alow", "x"}, "unknown flag: --alow; sb-run --help lists the flags"},
		{[]string{"img", "--allow"}, "flag needs an argument: --allow; "},
		{[]string{"img", "--cpus", "x"}, `invalid argument "x" for "--cpus" flag`},
		{[]string{"img", "--cpus", "0"}, "--cpus: 0 is not between 1 and 64"},
		{[]string{"img", "--cpus", "-1"}, "--cpus: -1 is not between 1 and 64"},
		{[]string{"img", "--cpus", "65"}, "--cpus: 65 is not between 1 and 64"},
		{[]string{"img", "--memory", "lots"}, `--memory: "lots" is no size: write it as 512m or 2g`},
		{[]string{"img", "--memory", "191m"}, "--memory: 191m is less than the 192m that a machine needs to boot"},
		{[]string{"img", "--memory", "512"}, "--memory: 512b is less than"},
		{[]string{"img", "--memory", ""}, "--memory: its value is empty; give it one, or leave the flag out"},
		{[]string{"img", "--disk", ""}, "--disk: its value is empty; "},
		{[]string{"img", "--disk", "1.5g"}, `--disk: "1.5g" is no size`},
		{[]string{"img", "--memory", "900t"}, "--memory: 900t is more than the " + (hostMemory() >> 20 << 20).String() + " that this host has"},
		{[]string{"img", "--disk", "99t"}, "--disk: 99t is not between 1g and 1t"},
		{[]string{"img", "--disk", "10m"}, "--disk: 10m is not between 1g and 1t"},
		{[]string{"img", "-v", dir + ":/proc"}, "/proc is the guest's own"},
		{[]string{"img", "-v", dir + ":/sys/../dev//x"}, "/dev is the guest's own"},
		{[]string{"img", "--disk", "1000"}, "--disk: 1000b is no whole number of megabytes: write it as 16g"},
		{[]string{"img", "--workspace", ""}, "--workspace: its value is empty; "},
		{[]string{"img", "-w", ""}, "--workspace: its value is empty; "},
		{[]string{"img", "--workdir", ""}, "--workdir: its value is empty; "},
		{[]string{"img", "--workdir", "a"}, `--workdir: "a" is not an absolute path`},
		{[]string{"img", "--user", ""}, "--user: its value is empty; "},
		{[]string{"img", "--accel", ""}, "--accel: its value is empty; "},
		{[]string{"img", "--accel", "hvf"}, `--accel: "hvf" is none of auto, kvm, tcg`},
		{[]string{"img", "--print="}, "--print: its value is empty; "},
		{[]string{"img", "--print=json"}, `--print: "json" is neither toml nor sh`},
		{[]string{"img", "--terminal", "none"}, `--terminal: "none" is neither filter nor raw`},
		{[]string{"img", "-t", "--no-tty"}, "--tty and --no-tty exclude each other"},
		{[]string{"img", "-e", ""}, `--env: "" is no variable: NAME=VALUE, or NAME for the one here`},
		{[]string{"img", "-e", "=x"}, `--env: "=x" is no variable`},
		{[]string{"img", "-e", "A B=x"}, `--env: "A B=x" is no variable`},
		{[]string{"img", "--env-file", ""}, "--env-file: its value is empty; "},
		{[]string{"img", "--env-file", filepath.Join(dir, "none")}, "--env-file: open " + filepath.Join(dir, "none") + ": no such file"},
		{[]string{"img", "--env-file", dir}, "--env-file: read " + dir},
		{[]string{"img", "-v", dir}, "--mount: \"" + dir + "\" is not HOST:GUEST[:ro|:copy]"},
		{[]string{"img", "-v", dir + ":/x:RO"}, `"RO" is no mount option: ro, rw and copy are`},
		{[]string{"img", "-v", dir + ":/x:ro:z"}, "\"z\" is no mount option: ro, rw and copy are"},
		{[]string{"img", "-v", ":/x"}, "is not HOST:GUEST[:ro|:copy]"},
		{[]string{"img", "-v", dir + ":x"}, `"x" is not an absolute path below the guest's root`},
		{[]string{"img", "-v", dir + ":/"}, `"/" is not an absolute path below the guest's root`},
		{[]string{"img", "-v", dir + ":/a/.."}, `"/a/.." is not an absolute path below the guest's root`},
		{[]string{"img", "-v", file + ":/x"}, "--mount: share " + file + ": not a directory"},
	} {
		_, err := parseOptions(c.args)
		if err == nil {
			t.Errorf("%q was taken", c.args)
			continue
		}
		if got := withHint(err); !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
	}
}

// withHint is an error and its hints as a text.
func withHint(err error) string {
	text := err.Error()
	var e *say.Error
	if errors.As(err, &e) {
		for _, h := range e.Hints {
			text += "; " + h
		}
	}
	return text
}

// TestEnvironment: a flag beats a file, a later word an earlier one.
func TestEnvironment(t *testing.T) {
	t.Setenv("HERE", "there")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one", "# a comment\n\n  \t# another\nA=1\nB=1\n  C=with blanks \nD=1\nHERE\nNOT_HERE\nLAST=no newline")
	two := write("two", "B=2\nQUOTE=\"as it is\"\nEQ=a=b\nLONG="+strings.Repeat("x", 100_000)+"\n")
	env, err := environment([]string{"A=3", "D=3", "D=4", "HERE=here"}, []string{one, two})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "3", "B": "2", "C": "with blanks ", "D": "4", "HERE": "here", "LAST": "no newline", "QUOTE": `"as it is"`, "EQ": "a=b", "LONG": strings.Repeat("x", 100_000)}
	if !reflect.DeepEqual(env, want) {
		t.Errorf("%q, want %q", env, want)
	}
	for text, want := range map[string]string{
		"A=1\n=x\n":                           `:2: "=x" is no variable`,
		"A=1\nexport B=2\n":                   `:2: "export B=2" is no variable`,
		strings.Repeat("x", maxEnvLine) + "=": "token too long",
	} {
		bad := write("bad", text)
		if _, err := environment(nil, []string{bad}); err == nil || !strings.Contains(err.Error(), "--env-file: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}
