package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"sb/lib/profile"
	"sb/lib/say"
)

// agents are the verbs about profiles.
func agents(args []string) error {
	return say.Verbs("sb-run agents", `
Profiles: kinds of sandboxes by their names, as sb-run claude. Those built in can
be changed by one of your own with the same name.`, []say.Verb{
		{Name: "ls", Args: "", Text: "list the profiles", Run: agentsLs},
		{Name: "show", Args: "NAME", Text: "print a profile", Run: agentsShow},
		{Name: "edit", Args: "NAME", Text: "change a profile, or write a new one", Run: agentsEdit},
		{Name: "rm", Args: "NAME", Text: "remove a profile of your own", Run: agentsRm},
		{Name: "reset", Args: "NAME", Text: "remove what is kept of a profile's sandboxes", Run: agentsReset},
		{Name: "cache", Args: "ls|rm", Text: "list or remove the environments that were built", Run: agentsCache},
	}, args)
}

// exampleProfile is one that is built in.
const exampleProfile = "shell"

// oneProfile parses the flags and returns the name of a profile, which need not be
// there.
func oneProfile(verb, about string, args []string) (profile.Set, string, error) {
	flags := say.Flags("sb-run agents "+verb, "NAME", about)
	if err := say.Parse(flags, args); err != nil {
		return profile.Set{}, "", err
	}
	if flags.NArg() != 1 {
		return profile.Set{}, "", say.WithHint(say.Usage("%s takes one profile, not %d", verb, flags.NArg()), "as in sb-run agents %s %s; sb-run agents ls lists them", verb, exampleProfile)
	}
	if !profile.IsName(flags.Arg(0)) {
		return profile.Set{}, "", say.Usage("%q is no name of a profile: lower case letters, digits, - and _", flags.Arg(0))
	}
	c, err := loadConfig()
	if err != nil {
		return profile.Set{}, "", err
	}
	return c.profiles(), flags.Arg(0), nil
}

// noProfile explains a name that no profile has.
func noProfile(s profile.Set, name string, err error) error {
	if !errors.Is(err, profile.ErrUnknown) {
		return err
	}
	names, _ := s.Names()
	return say.WithHint(fmt.Errorf("%s is no profile", name), "there is: %s", strings.Join(names, ", "))
}

// listedProfile is a line of agents ls.
type listedProfile struct {
	Name  string `json:"name"`
	From  string `json:"from,omitempty"` // the file; left out if it is built in
	About string `json:"about,omitempty"`
	State int64  `json:"state,omitempty"` // bytes of its state; left out if there is none
	Error string `json:"error,omitempty"`
}

func agentsLs(args []string) error {
	flags := say.Flags("sb-run agents ls", "[--json]", "Lists the profiles: their names, whose they are, how much state is kept of them and what they are for.")
	asJSON := flags.Bool("json", false, "print JSON, an object a line")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	c, err := loadConfig()
	if err != nil {
		return err
	}
	names, err := c.profiles().Names()
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	lines := say.JSON(os.Stdout)
	bad := false
	for _, name := range names {
		l := listedProfile{Name: name}
		p, err := c.profiles().Find(name)
		if err != nil {
			l.Error, bad = err.Error(), true
			say.Warn("%v", err)
		} else {
			l.From, l.About = p.From, p.About
		}
		if l.State, err = stateSize(name); err != nil {
			return err
		}
		if *asJSON {
			lines.Encode(l)
			continue
		}
		state := "-"
		if l.State > 0 {
			state = fmt.Sprintf("%.1fM", float64(l.State)/(1<<20))
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", name, say.Safe(cmp.Or(l.From, "built in")), state, say.Safe(l.About))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if bad {
		return say.Exit(codeOwn)
	}
	return nil
}

func agentsShow(args []string) error {
	s, name, err := oneProfile("show", "Prints a profile as it is, in TOML.", args)
	if err != nil {
		return err
	}
	text, _, err := s.Text(name)
	if err != nil {
		return noProfile(s, name, err)
	}
	_, err = os.Stdout.Write(text)
	return err
}

func agentsEdit(args []string) error {
	s, name, err := oneProfile("edit", "Opens a profile of your own in $VISUAL or $EDITOR: of a built-in one, a copy that takes\nits place from then on.", args)
	if err != nil {
		return err
	}
	if isVerb(name) {
		return say.Usage("%s cannot be a profile: sb-run %s is something else", name, name)
	}
	file := s.File(name)
	text, from, err := s.Text(name)
	switch {
	case errors.Is(err, profile.ErrUnknown):
		text = []byte("about = \"\"\nimage = [\"debian:bookworm\"]\ncommand = [\"/bin/bash\"]\n")
	case err != nil:
		return err
	}
	if from == "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.Write(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	cmd := exec.Command("sh", "-c", editor+` "$1"`, "sh", file) // it may have flags, as for git
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("edit %s with %s: %w", file, editor, err)
	}
	_, err = s.Find(name)
	return err
}

func agentsRm(args []string) error {
	s, name, err := oneProfile("rm", "Removes a profile of your own. A built-in one of its name is there again.", args)
	if err != nil {
		return err
	}
	err = os.Remove(s.File(name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, _, builtIn := s.Text(name); builtIn == nil {
			return fmt.Errorf("%s is built in, and you have none of your own by that name", name)
		}
		return noProfile(s, name, profile.ErrUnknown)
	}
	return err
}

// agentsCache lists or removes environments, which are images of sb-image's.
func agentsCache(args []string) error {
	flags := say.Flags("sb-run agents cache", "ls | rm [NAME…]", "Lists the environments that were built, or removes them: those of some profiles, or all.")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	e, stop := newEnding()
	defer stop()
	all, err := environments(e)
	if err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "ls":
		for _, im := range all {
			fmt.Printf("%s  %s\n", im.Ref, im.Digest)
		}
		return nil
	case "rm":
		return removeEnvironments(e, all, flags.Args()[1:])
	}
	return say.Usage("agents cache takes ls or rm, not %q", flags.Arg(0))
}

func environments(e *ending) (all []image, err error) {
	text, err := ask(e, false, "ls", "--json")
	if err != nil {
		return nil, err
	}
	var listed []image
	for l := range strings.Lines(text) {
		var im image
		if err := json.Unmarshal([]byte(l), &im); err != nil {
			return nil, fmt.Errorf("read what sb-image lists: %w", err)
		}
		listed = append(listed, im)
	}
	for _, im := range listed {
		if strings.HasPrefix(im.Ref, "env:") {
			all = append(all, im)
		}
	}
	return all, nil
}

// removeEnvironments removes those of some profiles, or all; a name without one is
// an error, before anything is removed.
func removeEnvironments(e *ending, all []image, names []string) error {
	chosen, err := environmentsOf(all, names)
	if err != nil {
		return err
	}
	for _, im := range chosen {
		if _, err := ask(e, true, "rm", im.Ref); err != nil {
			return err
		}
	}
	return nil
}

func environmentsOf(all []image, names []string) (chosen []image, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		before := len(chosen)
		for _, im := range all {
			if im.Ref[:strings.LastIndex(im.Ref, "-")] == "env:"+name {
				chosen = append(chosen, im)
			}
		}
		if len(chosen) == before {
			return nil, say.WithHint(fmt.Errorf("no environment of %s is there", name), "sb-run agents cache ls lists them")
		}
	}
	return chosen, nil
}
