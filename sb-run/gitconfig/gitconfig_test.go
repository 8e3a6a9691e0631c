package gitconfig

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestHarmlessLines: a line of git's configuration is marked unless it is known that
// git runs nothing by it.
func TestHarmlessLines(t *testing.T) {
	harmless := `# a comment
[core]
	bare = false
	filemode
[user]
	name = A B; C
[remote "origin"]
	url = https://example.org/r.git
	url = git@my-host.example.org:r.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "a/b"]
	remote = origin
	merge = refs/heads/main
[branch "c"]
	remote = .
[submodule "s"]
	path = a/s
`
	for n, l := range strings.Split(harmless, "\n") {
		if !HarmlessLines(strings.Split(harmless, "\n"))[n] {
			t.Errorf("%q is marked", l)
		}
	}
	for _, text := range []string{
		"[core]\nfsmonitor = x", "[core] fsmonitor = x", "[core]\nhooksPath = .", "[alias]\nx = !y", "[include]\npath = x", "[includeIf \"a\"]\npath = x",
		"[filter \"x\"]\nclean = y", "[remote \"o\"]\nurl = ext::sh -c x", "[remote \"o\"]\nurl = -x", "[remote \"o\"]\nuploadpack = x", "[remote \"o\"]\nproxy = x",
		"[branch \"b\"]\nremote = ext::sh", "[submodule \"s\"]\nupdate = !x", "[core]\nbare = \\\nfsmonitor = x", "[core.x]\nbare = y", "[core]\nsshCommand = x",
		"[credential]\nhelper = x", "[gpg]\nprogram = x", "[diff \"d\"]\ncommand = x", "[CORE]\nFSMonitor = x", "[core \"a\"] fsmonitor=x", "[core]\nbare = false ; x\nworktree = /",
		"[remote \"o\"]\nurl = /srv/r", "[remote \"o\"]\nurl = ../r", "[remote \"o\"]\npushurl = ./r", "[remote \"o\"]\nurl = file:///r",
		"[branch \"b\"]\nremote = ../r", "[branch \"b\"]\npushremote = /r", "[branch \"b\"]\nremote = ..", "[lfs \"customtransfer.x\"]\npath = y", "\ufeff[core]\nfsmonitor = x", "[user]\n\ufeff[core]",
		"[branch \"b\"]\nremote = vendor", "[remote \"vendor\"]\nfetch = +refs/heads/*:refs/remotes/v/*\n[branch \"b\"]\npushremote = vendor",
		"[remote \"vendor\"]\nurl = ./x\n[branch \"b\"]\npushremote = vendor", "[remote \"o\"]\nurl = git@-oProxyCommand=x:r",
		"[submodule \"s\"]\n# \\\n[pager]\nbranch = x", "[submodule \"s\"]\nname = a ; \\\n[pager]\nbranch = x", "[pager]\nlog = a \\\r\n[submodule \"s\"]\nbranch = x", "[pager]\r\nbranch = x\r",
	} {
		lines := strings.Split(text, "\n")
		if HarmlessLines(lines)[len(lines)-1] {
			t.Errorf("%q is not marked", text)
		}
	}
}

// TestRunning: what is not harmless is named, with the header that says of what.
func TestRunning(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[user]\n\tname = x\n[alias]\n", ""},
		{"\ufeff[user]\nname = x\n", ""},
		{"[Core] PAGER = x\n", "core.pager [Core] PAGER = x [Core] PAGER = x"},
		{"\ufeff[core]\r\nfsmonitor = x\r\n", "core.fsmonitor [core] fsmonitor = x"},
		{"[a][core]fsmonitor\n", "core.fsmonitor [a][core]fsmonitor [a][core]fsmonitor"},
		{"[user]\n# x \\\n[core]\nfsmonitor = x\n", `unclear [user] # x \|unclear [core] [core]|core.fsmonitor [core] fsmonitor = x`},
		{"[url \"ext::x\"]\ninsteadOf = y\n", `url.insteadof [url "ext::x"] insteadOf = y`},
		{"[pager]\nlog = a \\\n[b]\n", `pager.log [pager] log = a \|unclear [b] [b]`},
		{"[core \"]bare = \"]fsmonitor = x\n", `core.bare [core "]bare = "]fsmonitor = x [core "]bare = "]fsmonitor = x`},
		{"[\nx", "unclear [ [|.x [ x"},
	} {
		if got := strings.Join(Running([]byte(c.text)), "|"); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// FuzzRunning: git sets nothing but harmless keys by a text of which no line is listed.
func FuzzRunning(f *testing.F) {
	git, err := exec.LookPath("git")
	if err != nil {
		f.Skip(err)
	}
	for _, text := range []string{
		"[user]\n\tname = x\n", "[user]\n# x \\\n[core]\n\tfsmonitor = x\n", "\ufeff[core]\n\tfsmonitor = x\n", "[user]name=x\r\n[core]\r\npager=y",
		"[user]\nname = \"\\\n[core]\\\npager=y\"\n", "[remote \"a]\"]\nvcs = x", "[user] ; x\n[alias] ; [user]\nname = x", "[user]\nname = x # \\\n[core]\npager = x",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(Running(text)) > 0 {
			return
		}
		cmd := exec.Command(git, "config", "--file", "-", "--list", "-z", "--name-only")
		cmd.Stdin = bytes.NewReader(text)
		out, err := cmd.Output()
		if err != nil {
			return // git refuses it
		}
		for key := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			section, name := key[:max(0, strings.Index(key, "."))], key[strings.LastIndex(key, ".")+1:]
			if key != "" && !slices.Contains(harmlessKeys[section], name) {
				t.Errorf("%q sets %s", text, key)
			}
		}
	})
}
