package live

import (
	"strings"
	"testing"
)

// TestCaseInsensitive: on a file system that takes several spellings for one name the
// guest reaches what is protected by none of them. The kernel of few hosts has one, that
// of the machine has: the share server and its test run inside.
func TestCaseInsensitive(t *testing.T) {
	t.Parallel()
	claim(t, "bad-input", "casefold")
	r := run(t, box{flags: []string{"-w", workspace(t), "--private", "own"}, script: `set -e
umount own; mkfs.ext4 -q -F -O casefold -E encoding=utf8 /dev/vdc 32M; mkdir /loose /var/tmp/t; mount /dev/vdc /loose; mkdir /loose/dir; chattr +F /loose/dir
cd /loose/dir; echo "== loose"; echo x >Name; cat nAME
echo "== tests"; TMPDIR=/var/tmp/t SHARE_TEST_LOOSE_DIR=/loose/dir share.test -test.v -test.run '^TestCaseInsensitive$' 2>&1
echo "== end"`})
	r.ok(t)
	r.says(t, "loose", `^x$`)
	if got := r.section("tests"); !strings.Contains(got, "--- PASS: TestCaseInsensitive") || strings.Contains(got, "SKIP") {
		t.Errorf("inside:\n%s", got)
	}
}
