package dirs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEnsure(t *testing.T) {
	base := t.TempDir()
	fresh := filepath.Join(base, "a", "b")
	if got, err := Ensure(fresh); err != nil || got != fresh {
		t.Fatalf("Ensure(%s) = %q, %v", fresh, got, err)
	}
	if st, _ := os.Stat(fresh); st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, want 0700", st.Mode())
	}
	open := filepath.Join(base, "open")
	os.Mkdir(open, 0o755)
	file := filepath.Join(base, "file")
	os.WriteFile(file, nil, 0o600)
	link := filepath.Join(base, "link")
	os.Symlink(fresh, link)
	for _, bad := range []string{open, file, link} {
		if _, err := Ensure(bad); err == nil {
			t.Errorf("Ensure(%s): no error", bad)
		}
	}
}

func TestHomes(t *testing.T) {
	home := t.TempDir()
	for _, v := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SB_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	if got, err := Data(); err != nil || got != filepath.Join(home, "data", "sb") {
		t.Errorf("Data() = %q, %v", got, err)
	}
	t.Setenv("SB_HOME", filepath.Join(home, "all"))
	if got, err := Data(); err != nil || got != filepath.Join(home, "all", "data") {
		t.Errorf("Data() with SB_HOME = %q, %v", got, err)
	}
	t.Setenv("SB_HOME", "relative")
	if _, err := Data(); err == nil {
		t.Error("a relative SB_HOME was taken")
	}
}
