package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// standInImage stands in for sb-image. The files image and kernel beside it say
// that there is one; image.json is what show says.
func standInImage(args []string) error {
	s := &standIn{name: "sb-image", signals: make(chan os.Signal, 1)}
	self, _ := os.Executable()
	s.dir = filepath.Dir(self)
	verb := strings.Join(args[:min(len(args), 1)], "")
	if verb == "kernel" {
		verb = "kernel-" + args[1]
	}
	group, _ := unix.Getpgid(0)
	note(filepath.Join(s.dir, "sb-image.starts"), started{os.Getpid(), group, args, os.Environ(), inheritedFDs()})
	text, _ := os.ReadFile(filepath.Join(s.dir, "sb-image.does"))
	s.does = strings.Fields(string(text))
	if s.will(verb + "-fails") {
		return say.WithHint(fmt.Errorf("%s: it is broken", verb), "mend it")
	}
	if s.will(verb + "-waits") {
		signal.Notify(s.signals, syscall.SIGTERM, syscall.SIGINT)
		say.Note("fetching")
		<-s.signals
		if s.will("undoes-slowly") {
			s.awaitFile("go")
		}
		note(filepath.Join(s.dir, "undone"), verb)
		return errors.New("interrupted")
	}
	if verb == "add" {
		return s.addImage(args[len(args)-1])
	}
	there := func(file string) error {
		if _, err := os.Stat(filepath.Join(s.dir, file)); err != nil {
			return fmt.Errorf("no %s is there", file)
		}
		return nil
	}
	switch verb {
	case "show":
		file := "image"
		if _, err := os.Stat(filepath.Join(s.dir, "builds")); err == nil && strings.HasPrefix(args[1], "env:") {
			file = args[1]
		}
		if err := there(file); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(s.dir, args[1]+".json"))
		if err != nil {
			text, err = os.ReadFile(filepath.Join(s.dir, "image.json"))
		}
		if rest, ok := strings.CutPrefix(string(text), "{"); ok {
			text = fmt.Appendf(nil, `{"path":%q,%s`, filepath.Join(s.dir, "image"), rest)
		}
		os.Stdout.Write(text)
		return err
	case "pull":
		say.Note("fetching %s", args[1])
		return os.WriteFile(filepath.Join(s.dir, "image"), nil, 0o600)
	case "kernel-show":
		if err := there("kernel"); err != nil {
			return err
		}
		fmt.Println(filepath.Join(s.dir, "kernel"))
	case "kernel-install":
		fmt.Println(filepath.Join(s.dir, "kernel"))
		return os.WriteFile(filepath.Join(s.dir, "kernel"), nil, 0o600)
	case "disk":
		return os.WriteFile(args[1], []byte(strings.Repeat("disk\n", 100)), 0o600)
	}
	return nil
}
