package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/say"
	"sb/sb-run/gitconfig"

	"golang.org/x/term"
)

// accept takes what sandboxes wrote for themselves in a workspace, once the user
// has seen it.
func accept(args []string) error {
	flags := say.Flags("sb-run accept", "[--workspace DIR] [--show|--drop|--yes]",
		"Takes what sandboxes of a workspace wrote for themselves to .git/config and other shadowed files.\n"+
			"It prints what would change; ! marks a line by which git may run a program.")
	workspace := flags.StringP("workspace", "w", "", "the workspace (`DIR`; the current directory, or one above it in its repository)")
	show := flags.Bool("show", false, "print it, and change nothing")
	drop := flags.Bool("drop", false, "forget it, and change nothing")
	yes := flags.Bool("yes", false, "take it without asking")
	noInput := flags.Bool("no-input", false, "never ask anything")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.WithHint(say.Usage("sb-run accept takes no arguments, got %q", flags.Arg(0)), "--workspace DIR names the workspace")
	}
	if *show && *drop || *show && *yes || *drop && *yes {
		return say.Usage("--show, --drop and --yes exclude each other")
	}
	host, dir, files, err := findOffers(*workspace)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		say.Note("no sandbox has written anything for itself in %s", host)
		return nil
	}
	for _, f := range files {
		if !*drop {
			f.print(os.Stdout)
		}
	}
	if *show {
		return nil
	}
	if !*drop {
		if err := confirmOffers(host, *yes, *noInput); err != nil {
			return err
		}
	}
	held, err := holdOffers(host, dir, files)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer held.Close()
	if *drop {
		return dropOffers(host, dir, files)
	}
	return takeOffers(host, dir, files)
}

// takeOffers puts what was shown in place, and forgets it then.
func takeOffers(host, dir string, files []offer) error {
	for _, f := range files {
		if err := f.take(host); err != nil {
			return fmt.Errorf("accept %s: %w", f.path, err)
		}
		if err := dropOffer(dir, f.path); err != nil {
			return err
		}
	}
	return nil
}

// findOffers looks for what sandboxes of a workspace wrote. Without a word that is the
// current directory, or the next one above it with something, up to the top of its
// repository.
func findOffers(workspace string) (host, dir string, files []offer, err error) {
	here, err := realDirectory(first(workspace, "."))
	if err != nil {
		return "", "", nil, fmt.Errorf("accept: %s: %w", first(workspace, "."), err)
	}
	for host = here; ; host = filepath.Dir(host) {
		if dir, err = workspacePath(host); err == nil {
			files, err = pending(host, dir)
		}
		if err != nil {
			return "", "", nil, fmt.Errorf("accept: read what was kept of %s: %w", host, err)
		}
		if len(files) > 0 && host != here {
			say.Note("this is of sandboxes of %s", host)
		}
		if len(files) > 0 {
			return host, dir, files, nil
		}
		_, err := os.Lstat(filepath.Join(host, ".git"))
		if workspace != "" || err == nil || host == "/" || slices.Contains(homes(), host) {
			return here, dir, nil, nil
		}
	}
}

// holdOffers keeps what sandboxes of a workspace wrote as it is, if it is what was
// shown. Closing the file ends it.
func holdOffers(host, dir string, shown []offer) (*os.File, error) {
	held, err := lockOffers(dir)
	if err != nil {
		return nil, err
	}
	now, err := pending(host, dir)
	if err == nil && !slices.EqualFunc(now, shown, offer.equal) {
		err = say.WithHint(fmt.Errorf("what is offered for %s changed meanwhile, and nothing was taken or forgotten", host), "sb-run accept shows it as it is now")
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return held, nil
}

// dropOffers forgets them, and says so.
func dropOffers(host, dir string, files []offer) error {
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "files")), os.RemoveAll(filepath.Join(dir, "was"))); err != nil {
		return fmt.Errorf("accept: forget what was kept of %s: %w", host, err)
	}
	for _, f := range files {
		say.Note("forgotten: %s, as a sandbox wrote it", filepath.Join(host, f.path))
	}
	return nil
}

// offer is an offered file beside the host's.
type offer struct {
	offered
	was string // the host's text
}

func (f offer) equal(g offer) bool {
	return f.path == g.path && f.mode == g.mode && f.was == g.was && bytes.Equal(f.text, g.text)
}

// pending are the files that differ from the host's.
func pending(host, dir string) (all []offer, err error) {
	files, err := readOffers(filepath.Join(dir, "files"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(host)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, f := range files {
		now, err := readOffered(root, f.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		if err != nil || digestOf(now.text, now.mode) != digestOf(f.text, f.mode) {
			all = append(all, offer{f, string(now.text)})
		}
	}
	return all, nil
}

// sayOffered says what sandboxes of a workspace wrote for themselves and the next one
// begins with, though the tree was put back.
func sayOffered(workspace string) {
	dir, err := workspacePath(workspace)
	if err != nil {
		return
	}
	files, err := pending(workspace, dir)
	if err != nil || len(files) == 0 {
		return // accept tells what is wrong
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.path)
	}
	say.Note("the next sandbox still begins with what the last one wrote for itself, %s: sb-run accept --drop forgets that", strings.Join(paths, ", "))
}

// print prints the difference, the sandbox's bytes safe for a terminal.
func (f offer) print(w io.Writer) {
	mode := ""
	if f.mode&0o100 != 0 {
		mode = " (a program)"
	}
	fmt.Fprintf(w, "--- %s\n+++ %s, as the sandbox wrote it%s\n", say.Safe(f.path), say.Safe(f.path), mode)
	runs := func(int) bool { return true }
	if base := filepath.Base(f.path); base == "config" || base == "config.worktree" {
		harmless := gitconfig.HarmlessLines(lines(string(f.text)))
		runs = func(n int) bool { return !harmless[n] }
	}
	for _, l := range difference(lines(f.was), lines(string(f.text))) {
		mark := " "
		if l.sign == '+' && runs(l.number) {
			mark = "!"
		}
		fmt.Fprintf(w, "%c%s %s\n", l.sign, mark, say.Safe(l.text))
	}
}

// confirmOffers asks whether what was printed is to be taken.
func confirmOffers(host string, yes, noInput bool) error {
	if yes {
		return nil
	}
	if noInput || !term.IsTerminal(int(os.Stdin.Fd())) {
		return say.WithHint(errors.New("nothing was taken: nobody can be asked"), "sb-run accept --yes takes it unasked")
	}
	fmt.Fprintf(os.Stderr, "Take this into %s? [y/N] ", say.Safe(host))
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return say.WithHint(errors.New("nothing was taken"), "sb-run accept --drop forgets it")
	}
	return nil
}

// acceptMade is what a file is called while it is made beside the one it replaces. No
// guest may change it there: it would change what was shown.
const acceptMade = ".sb-accept"

// take puts the file where it belongs, by way of no link that leads out.
func (f offer) take(host string) error {
	root, err := os.OpenRoot(host)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	made := filepath.Join(filepath.Dir(f.path), acceptMade)
	root.Remove(made)
	mode := fs.FileMode(0o644)
	if f.mode&0o100 != 0 {
		mode = 0o755
	}
	file, err := root.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(f.text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = root.Rename(made, f.path)
	}
	if err != nil {
		root.Remove(made)
	}
	return err
}
