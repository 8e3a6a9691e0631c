package live

import (
	"strings"
	"testing"
)

// TestLeftBehind: what a machine leaves in the workspace that could run on the host
// is listed at the end; what could not is not.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	r := run(t, box{flags: []string{"-w", dir, "--no-protect"}, script: `
git init -q . && git config core.fsmonitor ./spy && git config user.name x
echo x >.git/hooks/pre-commit; echo x >.envrc; ln -s /etc/passwd out; echo x >plain; echo x >Makefile
echo "== end"`})
	r.ok(t)
	t.Run("what could run is listed", func(t *testing.T) {
		claim(t, "left")
		for _, want := range []string{`".git/config" (new)`, "core.fsmonitor", `".git/hooks/pre-commit" (new)`, `".envrc" (new)`, `"out" (new): a link that leads out`} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%s is not listed:\n%s", want, r.stderr)
			}
		}
		for _, not := range []string{"plain", "Makefile", "link-out", "user.name"} {
			if strings.Contains(r.stderr, not) {
				t.Errorf("%s is listed:\n%s", not, r.stderr)
			}
		}
	})
}
