package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"sb/lib/say"

	"golang.org/x/term"
)

// trust accepts a project file as it is.
func trust(args []string) error {
	flags := say.Flags("sb-run trust", "[DIR]", "Shows the project file of a directory and, on a terminal, asks whether to accept it as it is.")
	show := flags.Bool("show", false, "show it, and whether it is accepted, and ask nothing")
	noInput := flags.Bool("no-input", false, "never ask anything: nothing is accepted")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 1 {
		return say.Usage("%q is one word too many", flags.Arg(1))
	}
	p, err := findProject(first(flags.Arg(0), "."))
	if err != nil {
		return err
	}
	if p == nil || p.path == "" {
		return say.WithHint(fmt.Errorf("accept a project file: there is no %s", projectName), "sb-run init writes one")
	}
	for line := range strings.Lines(string(p.text)) {
		fmt.Println(say.Safe(strings.TrimRight(line, "\r\n")))
	}
	p.say()
	if p.accepted || *show {
		return nil
	}
	if *noInput || !term.IsTerminal(int(os.Stdin.Fd())) {
		return say.WithHint(fmt.Errorf("accept %s: nobody can be asked", p.path), "run sb-run trust on a terminal")
	}
	fmt.Fprintf(os.Stderr, "Accept %s as it is? [y/N] ", say.Safe(p.path))
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
		return errors.New("the project file was not accepted")
	}
	file, err := trustFile(p)
	if err == nil {
		err = os.WriteFile(file, []byte(p.path+"\n"), 0o600)
	}
	return err
}

// say says whether a file is accepted, and what that widens.
func (p *project) say() {
	is := "is not accepted"
	if p.accepted {
		is = "is accepted"
	}
	say.Note("%s %s", p.path, is)
	var wide []string
	for _, w := range []struct {
		does string
		what []string
	}{{"allows", p.Rules.Allow}, {"gives the secrets", p.Secrets}, {"has profiles run in the image", []string{p.Image}}, {"is run as the profile", []string{p.Profile}}} {
		if words := strings.Join(w.what, ", "); words != "" {
			wide = append(wide, w.does+" "+words)
		}
	}
	if len(wide) == 0 {
		say.Note("it narrows, which holds in any case")
	} else {
		say.Note("accepted, it %s", strings.Join(wide, ", "))
	}
}

const projectText = `# What sandboxes of this directory are: sb-run(1), PROJECT FILE.
# Until you accept it (sb-run trust) only what narrows holds.

profile = %q
# image = "debian:bookworm"
# secrets = ["anthropic"]
# cpus = 2          # at most
# memory = "2g"     # at most

[rules]
allow = []
deny = []

[workspace]
# read_only = true
# protect = ["Makefile"]   # read-only in the guest
# hide = [".env*"]         # not there in the guest
`

// initProject writes a project file.
func initProject(args []string) error {
	flags := say.Flags("sb-run init", "[--profile NAME]", "Writes "+projectName+" in this directory, where there is none.")
	name := flags.String("profile", "shell", "the profile `NAME`, for sb-run without a target")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("%q is one word too many", flags.Arg(0))
	}
	c, err := loadConfig()
	if err != nil {
		return err
	}
	if _, err := c.profiles().Find(*name); err != nil {
		return noProfile(c.profiles(), *name, err)
	}
	text := fmt.Sprintf(projectText, *name) + refusedText()
	f, err := os.OpenFile(projectName, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return say.WithHint(fmt.Errorf("write the project file: there is a %s here", projectName), "change that, or remove it; sb-run trust --show shows whether it is accepted")
	}
	if err != nil {
		return fmt.Errorf("write the project file: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		os.Remove(projectName)
		return fmt.Errorf("write the project file: %w", err)
	}
	say.Note("wrote %s: change it, and accept it with sb-run trust", projectName)
	return nil
}

// refusedText is what the newest sandbox was refused, as comments: names are a
// guest's, and written as in the log.
func refusedText() string {
	files, err := whyLogs("")
	if err != nil {
		return ""
	}
	var r refusals
	for _, f := range files {
		r.readFile(f) // what cannot be read is not proposed
	}
	var b strings.Builder
	for i, t := range r.list() {
		if i == 0 {
			b.WriteString("\n# The newest sandbox, wherever it ran, was refused:\n")
		}
		if i == maxShown {
			break
		}
		fmt.Fprintf(&b, "#   %s\n", t)
	}
	return b.String()
}
