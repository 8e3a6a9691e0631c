//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// user is as whom a command runs.
type user struct {
	uid, gid    uint32
	groups      []uint32
	name        string
	home, shell string
}

// findUser resolves NAME, UID, NAME:GROUP or UID:GID, as Docker does, from the
// image's passwd and group files. A number that they do not have is taken as it
// is.
func findUser(spec string) (user, error) {
	if spec == "" {
		spec = "root"
	}
	name, group, hasGroup := strings.Cut(spec, ":")
	u, err := passwd(name)
	if err != nil {
		return user{}, err
	}
	if hasGroup {
		gid, err := groupID(group)
		if err != nil {
			return user{}, err
		}
		u.gid, u.groups = gid, nil
		return u, nil
	}
	u.groups = groupsOf(u.name)
	return u, nil
}

func passwd(name string) (user, error) {
	n, err := strconv.ParseUint(name, 10, 32)
	isNumber := err == nil
	for _, f := range table("/etc/passwd", 7) {
		if f[0] != name && !(isNumber && f[2] == name) {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			return user{}, fmt.Errorf("/etc/passwd: bad entry of %q", name)
		}
		u := user{uid: uint32(uid), gid: uint32(gid), name: f[0], home: f[5], shell: f[6]}
		if u.shell == "" {
			u.shell = "/bin/sh"
		}
		return u, nil
	}
	switch {
	case isNumber:
		return user{uid: uint32(n), gid: 0, home: "/", shell: "/bin/sh"}, nil
	case name == "root":
		return user{name: "root", home: "/root", shell: "/bin/sh"}, nil
	}
	return user{}, fmt.Errorf("no user %q in the image", name)
}

func groupID(name string) (uint32, error) {
	n, err := strconv.ParseUint(name, 10, 32)
	if err == nil {
		return uint32(n), nil
	}
	for _, f := range table("/etc/group", 3) {
		if f[0] == name {
			if n, err := strconv.ParseUint(f[2], 10, 32); err == nil {
				return uint32(n), nil
			}
		}
	}
	return 0, fmt.Errorf("no group %q in the image", name)
}

func groupsOf(name string) (ids []uint32) {
	if name == "" {
		return nil
	}
	for _, f := range table("/etc/group", 4) {
		if slices.Contains(strings.Split(f[3], ","), name) {
			if n, err := strconv.ParseUint(f[2], 10, 32); err == nil {
				ids = append(ids, uint32(n))
			}
		}
	}
	return ids
}

// table reads the lines of a colon-separated file that have so many fields.
func table(path string, fields int) (rows [][]string) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if row := strings.Split(s.Text(), ":"); len(row) >= fields {
			rows = append(rows, row)
		}
	}
	return rows
}
