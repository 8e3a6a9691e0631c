//go:build linux

package share

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// looseDirEnv names a directory of a file system that takes several spellings for
// a name, for a machine whose own kernel has none.
const looseDirEnv = "SHARE_TEST_LOOSE_DIR"

// looseDir is a directory in which case and Unicode forms are one: of ext4 with
// casefold, or of vfat.
func looseDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(looseDirEnv); dir != "" {
		sub := filepath.Join(dir, t.Name())
		must(t, os.Mkdir(sub, 0o755))
		return sub
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 32<<20))
	for _, script := range []string{
		`mkfs.ext4 -q -O casefold -E encoding=utf8 "$1" && mount -o loop "$1" "$2" && mkdir "$2/loose" && chattr +F "$2/loose"`,
		`mkfs.vfat "$1" >/dev/null && mount -o loop,utf8 "$1" "$2" && mkdir "$2/loose"`,
	} {
		if out, err := exec.Command("sh", "-c", script, "sh", image, dir).CombinedOutput(); err != nil {
			t.Logf("%v: %s", err, out)
			unix.Unmount(dir, unix.MNT_DETACH)
			continue
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		return filepath.Join(dir, "loose")
	}
	t.Skip("SKIPPED: this kernel has neither ext4 with casefold nor vfat")
	return ""
}

// TestCaseInsensitive: on a file system that takes several spellings for a name, the
// guest changes what rules protect by none of them, whether it is there or not; and
// by all of them where there are no rules.
func TestCaseInsensitive(t *testing.T) {
	dir := looseDir(t)
	write1(t, filepath.Join(dir, "probe"), "")
	if _, err := os.Lstat(filepath.Join(dir, "PROBE")); err != nil {
		t.Fatal("control: the directory tells case apart")
	}
	there := []string{".git/hooks/pre-commit", ".git/config", ".envrc", ".vscode/tasks.json", "straße"}
	attempts := []string{
		".GIT/HOOKS/pre-commit", ".Git/Hooks/PRE-COMMIT", ".git/HOOKS/new", ".git/hook\u017f/new", ".g\u0131t/hooks/new",
		".Git/Config", ".GIT/config", ".git/CONFIG", ".Envrc", ".ENVRC", "\u212aeep/.Envrc", "keep/.ENVRC",
		".VSCODE/TASKS.JSON", ".v\u017fcode/tasks.json", ".vscode/ta\u017fks.json", ".MCP.json", ".mcp.j\u017fon",
		".mi\u017fe.toml", ".MISE.TOML", ".IDEA/workspace.xml", ".Git/CommonDir", ".git/commondir\u200b", ".git\u200c/commondir",
		"STRASSE", "strasse", "stra\u1e9ee", "cafe\u0301", "CAFE\u0301",
	}
	rules := []string{"/.git/hooks", "/.git/config", "/.git/commondir", ".envrc", "/.vscode/tasks.json", "/.mcp.json", "/.mise.toml", "/.idea", "/straße", "/caf\u00e9"}
	src := filepath.Join(dir, "src")
	fill := func() {
		must(t, os.RemoveAll(src))
		must(t, os.MkdirAll(filepath.Join(src, "keep"), 0o755))
		for _, f := range there {
			must(t, os.MkdirAll(filepath.Join(src, filepath.Dir(f)), 0o755))
			write1(t, filepath.Join(src, f), "host")
		}
	}
	fill()
	m := mount(t, exportSpec{Dir: src, Protected: rules})
	for _, attempt := range attempts {
		attack(m, attempt)
		if changed := changedFiles(src, there); len(changed) > 0 {
			t.Errorf("by %q the guest changed %q", attempt, changed)
		}
	}
	must(t, os.WriteFile(m.in("keep/Readme"), []byte("x"), 0o644)) // beside it everything can be done
	unix.Unmount(m.guest, unix.MNT_DETACH)

	broken := 0
	for _, attempt := range attempts {
		fill()
		m := mount(t, exportSpec{Dir: src})
		if attack(m, attempt); len(changedFiles(src, there)) > 0 {
			broken++
		}
		unix.Unmount(m.guest, unix.MNT_DETACH)
	}
	t.Logf("without rules %d of %d attempts do it", broken, len(attempts))
	if broken < len(attempts)-1 { // a dotless i is an i in no table of ours
		t.Error("control: they are too few")
	}
}

// attack tries to make or change what is called name.
func attack(m *mounted, name string) {
	os.RemoveAll(m.in("plain"))
	os.WriteFile(m.in("plain"), []byte("guest"), 0o644)
	os.Rename(m.in("plain"), m.in(name))
	os.Mkdir(m.in(filepath.Dir(name)), 0o755)
	os.WriteFile(m.in(name), []byte("guest"), 0o644)
	os.Symlink("/etc", m.in(name))
	os.Mkdir(m.in(name), 0o755)
}

// changedFiles are the paths that rules have and that are not as they were.
func changedFiles(src string, there []string) (changed []string) {
	for _, path := range []string{".git/hooks/new", ".git/hooks/pre-commit", ".git/config", ".git/commondir", ".envrc", "keep/.envrc", ".vscode/tasks.json", ".mcp.json", ".mise.toml", ".idea", "straße", "caf\u00e9"} {
		text, err := os.ReadFile(filepath.Join(src, path))
		was := slices.Contains(there, path)
		if was && string(text) != "host" || !was && !os.IsNotExist(err) {
			changed = append(changed, path)
		}
	}
	return changed
}
