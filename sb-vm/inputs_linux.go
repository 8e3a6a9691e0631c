package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"sb/lib/manifest"
	"sb/lib/say"
	"sb/lib/template"

	"golang.org/x/sys/unix"
)

// inputs are what goes into the saved machine: where one of them is different it is
// another machine. They are named for people, who are told which one was.
func (q *qemu) inputs() ([]template.Input, error) {
	m := q.m.Machine
	in := []template.Input{
		{Name: template.Release, Value: say.Version},
		{Name: "machine", Value: q.machine(save)},
		{Name: "processor", Value: processor(q.accel)},
		{Name: "cpus", Value: strconv.Itoa(m.CPUs)},
		{Name: "memory", Value: m.Memory.String()},
		{Name: "mtu", Value: strconv.Itoa(q.m.Network.MTU)},
		{Name: "shares", Value: strconv.Itoa(sharePorts(len(q.m.Shares)))},
	}
	for _, f := range []struct{ name, path string }{{"QEMU", q.program}, {"kernel", q.kernel}, {"guest program", q.initramfs}, {"image", m.Base}} {
		is, err := template.Identify(f.path)
		if err != nil {
			return nil, err
		}
		in = append(in, template.Input{Name: f.name, Value: is, File: f.path})
	}
	disk, err := emptyDisk(m.Disk)
	if err != nil {
		return nil, err
	}
	// The whole of the command line, for what is not thought of above.
	like := *q
	like.m = machineAlone(q.m, "disk")
	like.saved = "memory"
	return append(in, template.Input{Name: "disk", Value: disk},
		template.Input{Name: template.Command, Value: strings.Join(like.argv(save), "\n")}), nil
}

// machineAlone is the machine of a sandbox and nothing else of it: of its shares,
// how many there are.
func machineAlone(m *manifest.Manifest, disk string) *manifest.Manifest {
	alone := &manifest.Manifest{Name: "template", Network: manifest.Network{MTU: m.Network.MTU}, Machine: m.Machine,
		Shares: make([]manifest.Share, len(m.Shares))}
	alone.Machine.Disk, alone.Machine.Console, alone.Machine.Kept = disk, "", ""
	return alone
}

// processor is what the guest sees of this host's: all of it under KVM, nothing if
// it is emulated.
func processor(accel string) string {
	if accel != "kvm" {
		return "emulated"
	}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	var lines []string
	for s := bufio.NewScanner(f); s.Scan() && s.Text() != ""; {
		switch key, _, _ := strings.Cut(s.Text(), "\t"); key {
		case "vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "CPU implementer", "CPU part", "CPU variant", "CPU revision", "Features":
			lines = append(lines, s.Text())
		}
	}
	var host unix.Utsname
	unix.Uname(&host)
	return strings.Join(append(lines, unix.ByteSliceToString(host.Release[:])), "\n")
}

// maxEmpty is the most that a disk with nothing on it takes, in bytes.
const maxEmpty = 16 << 20

// ownInodes is how many inodes an empty ext4 has in use: those below
// EXT4_GOOD_OLD_FIRST_INO (fs/ext4/ext4.h), and lost+found.
const ownInodes = 11

// emptyDisk is the digest of a disk that was never mounted and has no files. Another
// has something of somebody's on it, which must not be saved.
func emptyDisk(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", errors.New("its disk is no file")
	}
	// The superblock of ext4 (fs/ext4/ext4.h): s_inodes_count, s_free_inodes_count,
	// s_mtime, s_mnt_count, s_magic.
	var super [1024]byte
	if _, err := f.ReadAt(super[:], 1024); err != nil && err != io.EOF {
		return "", err
	}
	inodes, free := binary.LittleEndian.Uint32(super[0:]), binary.LittleEndian.Uint32(super[0x10:])
	mounted := binary.LittleEndian.Uint32(super[0x2c:])
	count, magic := binary.LittleEndian.Uint16(super[0x34:]), binary.LittleEndian.Uint16(super[0x38:])
	if inodes-free > ownInodes || mounted != 0 || count != 0 || magic != 0xef53 || st.Blocks*512 > maxEmpty {
		return "", errors.New("its disk is not a new one")
	}
	digest, err := template.Digest(f)
	if err != nil {
		return "", fmt.Errorf("read the disk: %w", err)
	}
	return digest, nil
}
