package live

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestOrdinaryUser is the main path as a user without any privilege: a machine
// boots, is confined, shares the user's directory and reaches what is allowed.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	const uid = 54321 // a user that exists nowhere
	dir, err := os.MkdirTemp("", "sb-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	work := filepath.Join(dir, "work")
	// The user's own store, with the image that was made: making one is tested
	// where the archive can be reached.
	for _, c := range [][]string{
		{"mkdir", "-p", work, dir + "/data/sb"},
		{"chmod", "700", dir + "/data/sb"},
		{"cp", "-a", "--reflink=auto", os.Getenv(dataVar) + "/sb/images", os.Getenv(dataVar) + "/sb/refs", os.Getenv(dataVar) + "/sb/kernel", dir + "/data/sb/"},
		{"cp", "-a", os.Getenv(binVar), dir + "/bin"}, // where the tools were built may be closed to others
		{"chown", "-R", fmt.Sprint(uid, ":", uid), dir},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", c, err, out)
		}
	}
	asUser := func(args ...string) (string, string, error) {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = work
		cmd.Env = []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir + "/data", "PATH=" + dir + "/bin:/usr/bin:/bin", "TERM=dumb"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{}}}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		return out.String(), errs.String(), err
	}
	out, errs, err := asUser(dir+"/bin/sb-run", imageRef, "--cpus=1", "--memory=512m", "-w", work, "--allow", "allowed.example.org", "--", "sh", "-c", `
echo made >from-guest; stat -c %u from-guest
curl -sS --max-time 20 http://allowed.example.org/x; curl -sS --max-time 20 http://denied.example.org/ 2>&1
ping -c1 -W5 allowed.example.org | grep received`)
	t.Run("boots and reaches what is allowed", func(t *testing.T) {
		claim(t, "user")
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, errs)
		}
		if !regexp.MustCompile(`(?s)^0\nserved GET /x.*Could not resolve`).MatchString(out) {
			t.Errorf("stdout:\n%s", out)
		}
	})
	t.Run("what the guest makes is the user's", func(t *testing.T) {
		claim(t, "user")
		st, err := os.Stat(filepath.Join(work, "from-guest"))
		if err != nil || st.Sys().(*syscall.Stat_t).Uid != uid {
			t.Errorf("%v, %v", st, err)
		}
	})
	t.Run("starts from memory the next time", func(t *testing.T) {
		claim(t, "user", "template")
		if !strings.Contains(errs, firstOne) {
			t.Errorf("control: the first start says\n%s", errs)
		}
		out, errs, err := asUser(dir+"/bin/sb-run", imageRef, "--cpus=1", "--memory=512m", "--accel=tcg", "-w", work, "--", "cat", "from-guest")
		if err != nil || out != "made\n" || strings.Contains(errs, "sb-vm:") {
			t.Errorf("%v: %q, stderr\n%s", err, out, errs)
		}
	})
	t.Run("is confined, and says what is missing", func(t *testing.T) {
		claim(t, "user", "confined")
		if strings.Contains(errs, "not confined") {
			t.Errorf("stderr:\n%s", errs)
		}
	})
}
