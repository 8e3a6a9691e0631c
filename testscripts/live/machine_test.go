package live

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestDevices: what the guest sees of a machine is listed, and each line argued
// for in testdata/devices.txt.
func TestDevices(t *testing.T) {
	t.Parallel()
	claim(t, "devices")
	r := run(t, box{script: `echo "== devices"
for d in /sys/bus/pci/devices/*; do echo "pci $(cut -c3- $d/vendor):$(cut -c3- $d/device) class $(cut -c3- $d/class)"; done
for d in /sys/bus/virtio/devices/*; do echo "virtio $(cat $d/device)"; done
for d in /sys/class/virtio-ports/*; do echo "port $(cat $d/name)"; done
for d in /sys/bus/pnp/devices/*; do echo "pnp $(head -1 $d/id)"; done
for d in /sys/bus/usb/devices/*; do test -e $d && echo "usb $d"; done
for d in /sys/class/net/*; do echo "net $(basename $d)"; done
for d in /sys/class/block/*; do echo "block $(basename $d)"; done
echo "== end"`})
	r.ok(t)
	got := strings.Split(r.section("devices"), "\n")
	slices.Sort(got)
	file := filepath.Join("testdata", "devices.txt")
	text, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	var want []string
	why := map[string]string{}
	for l := range strings.Lines(string(text)) {
		line, reason, _ := strings.Cut(strings.TrimSpace(l), "  # ")
		if line == "" || line[0] == '#' {
			continue
		}
		if reason == "" {
			t.Errorf("%s: %q has no argument", file, line)
		}
		want = append(want, line)
		why[line] = reason
	}
	slices.Sort(want)
	if *update {
		var b strings.Builder
		for _, l := range got {
			fmt.Fprintf(&b, "%s  # %s\n", l, why[l])
		}
		os.WriteFile(file, []byte(b.String()), 0o644)
	} else if !slices.Equal(got, want) {
		t.Errorf("the guest sees\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// status reads a field of /proc/PID/status.
func status(t *testing.T, pid int, field string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + field + `:\s+(.*)$`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("no %s in the status of %d", field, pid)
	}
	return m[1]
}

// TestConfined: QEMU and the share server run without privileges, without
// network and without files but their own. What that stops is tested where the
// confinement is made; here, that it is in force around a real machine.
func TestConfined(t *testing.T) {
	t.Parallel()
	s := start(t, box{script: waiting})
	self := os.Getpid()
	for _, c := range []struct {
		name string
		pid  int
		caps string
	}{
		{"QEMU", s.pidOf("qemu-system-x86_64"), "0000000000000000"},
		{"the share server", s.sharePid(), "000000000000000a"}, // to serve as root what other users own
	} {
		t.Run(c.name, func(t *testing.T) {
			claim(t, "confined")
			for field, want := range map[string]string{"CapEff": c.caps, "CapBnd": c.caps, "NoNewPrivs": "1", "Seccomp": "2"} {
				if got := status(t, c.pid, field); got != want {
					t.Errorf("%s is %s, want %s", field, got, want)
				}
				if got := status(t, self, field); got == want {
					t.Errorf("control: %s is %s in this process too", field, got)
				}
			}
			for _, ns := range []string{"net", "mnt", "user", "ipc"} {
				here, _ := os.Readlink(fmt.Sprintf("/proc/self/ns/%s", ns))
				there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", c.pid, ns))
				if err != nil || here == there {
					t.Errorf("its %s namespace is ours (%s, %v)", ns, there, err)
				}
			}
			dev, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", c.pid))
			if err != nil || strings.Count(string(dev), ":") != 1 || !strings.Contains(string(dev), "lo:") {
				t.Errorf("its interfaces: %s (%v)", dev, err)
			}
			root := fmt.Sprintf("/proc/%d/root", c.pid)
			for _, path := range []string{"/root", "/home", "/etc/passwd", "/run", "/bin/sh", "/usr/bin/env"} {
				if _, err := os.Stat(root + path); err == nil {
					t.Errorf("it sees %s", path)
				}
				if _, err := os.Stat(path); err != nil {
					t.Errorf("control: %v", err)
				}
			}
		})
	}
}

// sharePid is the share server's process.
func (s *started) sharePid() int {
	s.t.Helper()
	pid := 0
	for _, p := range s.allProcesses() {
		if strings.Contains(p.args, "sb-vm share ") && p.ppid == s.pidOf("sb-vm") {
			pid = p.pid
		}
	}
	if pid == 0 {
		s.t.Fatal("no share server")
	}
	return pid
}

// TestStartAddsLittle: a sandbox that runs has added less than a megabyte to the
// disk.
func TestStartAddsLittle(t *testing.T) {
	t.Parallel()
	claim(t, "disk")
	s := start(t, box{script: `sync; echo up; sleep 1000`})
	var total int64
	filepath.Walk(filepath.Join(s.state, "run"), func(path string, info os.FileInfo, err error) error {
		if err == nil {
			total += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	// The disk has no name any more; QEMU has it open.
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.pidOf("qemu-system-x86_64")))
	found := false
	for _, fd := range fds {
		if link, _ := os.Readlink(fd); strings.Contains(link, "/disk") && strings.Contains(link, "(deleted)") {
			if st, err := os.Stat(fd); err == nil {
				found = true
				total += st.Sys().(*syscall.Stat_t).Blocks * 512
			}
		}
	}
	if !found {
		t.Error("control: no disk found")
	}
	if total >= 1<<20 {
		t.Errorf("the start added %d bytes, want less than 1 MiB", total)
	}
	t.Logf("the start added %d bytes", total)
}

// TestConsoleBounded: a guest that writes without end on its console fills
// neither the disk nor memory.
func TestConsoleBounded(t *testing.T) {
	t.Parallel()
	claim(t, "16", "17", "18")
	s := start(t, box{script: `n=0; while [ $n -lt 16 ]; do head -c 100000 /dev/zero | tr '\0' x >/dev/ttyS0; n=$((n+1)); done; echo the-end >/dev/ttyS0; echo up; sleep 1000`})
	logs, _ := filepath.Glob(filepath.Join(s.state, "run", "*", "console.log"))
	if len(logs) != 1 {
		t.Fatalf("console files %v", logs)
	}
	st, err := os.Stat(logs[0])
	if err != nil || st.Size() > 1<<20+100<<10 || st.Size() < 1<<20 {
		t.Errorf("the console's file has %d bytes (%v), want about 1 MiB of the 1.6 MB that were written", st.Size(), err)
	}
}

// TestResources: processors, memory and disk are as asked for.
func TestResources(t *testing.T) {
	t.Parallel()
	claim(t, "resources")
	r := run(t, box{flags: []string{"--cpus=2", "--memory=700m", "--disk=4g"}, script: `
echo "== cpus"; nproc
echo "== memory"; awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo
echo "== disk"; df -BM --output=size / | tail -1
echo "== end"`})
	r.ok(t)
	r.says(t, "cpus", `^2$`)
	r.says(t, "memory", `^6[5-9]\d$`)
	r.says(t, "disk", `^(39|40)\d\dM$`)
}

// TestClock: the guest's clock is the host's from the first command on, and the
// gateway keeps it.
func TestClock(t *testing.T) {
	t.Parallel()
	claim(t, "clock")
	r := run(t, box{script: `echo "== now"; date +%s; echo "== end"`})
	r.ok(t)
	var at int64
	fmt.Sscan(r.section("now"), &at)
	first, last := r.audit[0].Time.Unix(), r.audit[len(r.audit)-1].Time.Unix()
	if at < first || at > last {
		t.Errorf("the guest's clock says %d; the run was between %d and %d", at, first, last)
	}
}
