//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// makeUser makes sure that a number is a user's and lets him use sudo. Whoever
// holds it in the image is left as he is; else he gets that name, or one like it.
func makeUser(name string, uid uint32) error {
	u, err := passwd(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return err
	}
	if u.name == "" {
		if u, err = addUser(name, uid); err != nil {
			return fmt.Errorf("make the user %s: %w", name, err)
		}
	}
	if st, err := os.Stat("/etc/sudoers.d"); err != nil || !st.IsDir() {
		return nil
	}
	const file = "/etc/sudoers.d/sb"
	if err := os.WriteFile(file, []byte(u.name+" ALL=(ALL:ALL) NOPASSWD: ALL\n"), 0o440); err != nil {
		return err
	}
	return os.Chmod(file, 0o440)
}

// addUser enters a user and his group, with a home like those that the image's own
// tools would make.
func addUser(name string, uid uint32) (user, error) {
	if taken("/etc/passwd", name) {
		name = "sb-" + name
	}
	u := user{uid: uid, gid: uid, name: name, home: "/home/" + name, shell: "/bin/sh"}
	if executable("/bin/bash") == nil {
		u.shell = "/bin/bash"
	}
	id := strconv.FormatUint(uint64(uid), 10)
	if !taken("/etc/group", name) {
		if err := addLine("/etc/group", name+":x:"+id+":", 0o644); err != nil {
			return user{}, err
		}
	}
	if _, err := os.Stat("/etc/shadow"); err == nil {
		if err := addLine("/etc/shadow", name+":*:19000:0:99999:7:::", 0o640); err != nil { // no password opens it
			return user{}, err
		}
	}
	if err := addLine("/etc/passwd", strings.Join([]string{name, "x", id, id, "", u.home, u.shell}, ":"), 0o644); err != nil {
		return user{}, err
	}
	return u, makeHome(u)
}

func taken(file, name string) bool {
	for _, f := range table(file, 1) {
		if f[0] == name {
			return true
		}
	}
	return false
}

// addLine adds a line to a file that may lack the end of its last one.
func addLine(file, line string, mode os.FileMode) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// makeHome makes a home of what the image has for new users.
func makeHome(u user) error {
	if err := os.MkdirAll(filepath.Dir(u.home), 0o755); err != nil {
		return err
	}
	if _, err := os.Lstat(u.home); err == nil {
		return nil
	}
	if err := os.Mkdir(u.home, 0o755); err != nil {
		return err
	}
	if st, err := os.Stat("/etc/skel"); err == nil && st.IsDir() {
		if err := os.CopyFS(u.home, os.DirFS("/etc/skel")); err != nil {
			return err
		}
	}
	return filepath.WalkDir(u.home, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(u.uid), int(u.gid))
	})
}
