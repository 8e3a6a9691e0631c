package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sb/lib/manifest"
	"sb/lib/say"

	"github.com/spf13/pflag"
)

// options are the words of one call of sb-run.
type options struct {
	target  string
	command []string

	rules     manifest.Rules
	env       map[string]string
	workspace string // "": the profile's default
	workdir   string
	mounts    []manifest.Share
	cpus      int
	memory    manifest.Size
	disk      manifest.Size
	user      string
	accel     string

	tty, noTTY, interactive bool
	showLog, noInput        bool
	print                   string // "", toml or sh
}

func parseOptions(args []string) (*options, error) {
	o := &options{}
	flags := say.Flags("sb-run", "TARGET [flags] [-- CMD…]",
		"Runs a command in a machine of its own that reaches what its rules allow and nothing else.\n"+
			"TARGET is a profile (shell), an image (debian:bookworm, bootstrap:bookworm, oci:DIR …) or a manifest file (./sandbox.toml).\n"+
			"Other verbs: sb-run pair, sb-run attach.")
	var env, envFiles, mounts []string
	var memory, disk string
	flags.StringArrayVar(&o.rules.Allow, "allow", nil, "allow what `RULE` says: a host, *.suffix, address or range, with a :port where wanted")
	flags.StringArrayVar(&o.rules.Deny, "deny", nil, "deny what `RULE` says, whatever allows it")
	flags.BoolVar(&o.showLog, "show-policy-log", false, "print the audit log to stderr at the end")
	flags.StringArrayVarP(&env, "env", "e", nil, "set a variable in the guest; without a value, to the one here (`NAME[=VALUE]`)")
	flags.StringArrayVar(&envFiles, "env-file", nil, "read variables from `FILE`, one NAME[=VALUE] a line")
	flags.StringVarP(&o.workspace, "workspace", "w", "", "share `DIR` with the guest, at the same path, and start there; a profile shares the current directory")
	flags.StringVar(&o.workdir, "workdir", "", "start the command in `DIR` of the guest")
	flags.StringArrayVarP(&mounts, "mount", "v", nil, "share a directory with the guest (`HOST:GUEST[:ro]`)")
	flags.IntVar(&o.cpus, "cpus", 0, "processors of the machine (`N`, default 2)")
	flags.StringVar(&memory, "memory", "", "memory of the machine (`SIZE`, default 2g)")
	flags.StringVar(&disk, "disk", "", "how far the machine's disk may grow (`SIZE`, default 16g)")
	flags.StringVar(&o.user, "user", "", "run as this user of the image (`NAME|UID[:GROUP]`)")
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "keep stdin open (it always is; for those who type -it)")
	flags.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal; the default if stdin and stdout are one")
	flags.BoolVar(&o.noTTY, "no-tty", false, "give the command no terminal")
	flags.StringVar(&o.accel, "accel", "", "auto, kvm or tcg (`HOW`, default auto)")
	flags.StringVar(&o.print, "print", "", "print the sandbox's manifest (toml) or a script that does the same (sh), and run nothing (`AS`)")
	flags.Lookup("print").NoOptDefVal = "toml"
	flags.BoolVar(&o.noInput, "no-input", false, "never ask anything")
	if err := say.Parse(flags, args); err != nil {
		return nil, err
	}
	if err := o.words(flags); err != nil {
		return nil, err
	}
	var err error
	if o.env, err = environment(env, envFiles); err != nil {
		return nil, err
	}
	for _, m := range mounts {
		share, err := parseMount(m)
		if err != nil {
			return nil, err
		}
		o.mounts = append(o.mounts, share)
	}
	for _, s := range []struct {
		to         *manifest.Size
		flag, text string
	}{{&o.memory, "--memory", memory}, {&o.disk, "--disk", disk}} {
		if s.text != "" {
			if *s.to, err = manifest.ParseSize(s.text); err != nil {
				return nil, say.Usage("%s: %v", s.flag, err)
			}
		}
	}
	return o, o.check()
}

// words takes TARGET and the command apart.
func (o *options) words(flags *pflag.FlagSet) error {
	words, dash := flags.Args(), flags.ArgsLenAtDash()
	if dash >= 0 {
		words, o.command = words[:dash], words[dash:]
	}
	switch {
	case len(words) == 0:
		return say.WithHint(say.Usage("sb-run needs a target"), "sb-run shell runs a shell in this directory; sb-run --help tells more")
	case len(words) > 1:
		return say.WithHint(say.Usage("%q is one word too many", words[1]), "put the command behind --: sb-run %s -- %s", words[0], strings.Join(words[1:], " "))
	}
	o.target = words[0]
	return nil
}

func (o *options) check() error {
	switch {
	case o.tty && o.noTTY:
		return say.Usage("--tty and --no-tty exclude each other")
	case o.print != "" && o.print != "toml" && o.print != "sh":
		return say.Usage("--print: %q is neither toml nor sh", o.print)
	case o.cpus < 0 || o.cpus > manifest.MaxCPUs:
		return say.Usage("--cpus: %d is not between 1 and %d", o.cpus, manifest.MaxCPUs)
	case o.memory != 0 && o.memory < manifest.MinMemory:
		return say.Usage("--memory: %s is less than the %s that a machine needs to boot", o.memory, manifest.Size(manifest.MinMemory))
	case o.accel != "" && o.accel != "auto" && o.accel != "kvm" && o.accel != "tcg":
		return say.Usage("--accel: %q is none of auto, kvm, tcg", o.accel)
	case o.workdir != "" && !filepath.IsAbs(o.workdir):
		return say.Usage("--workdir: %q is not an absolute path", o.workdir)
	}
	return nil
}

// environment joins the variables of files and flags; a flag beats a file, a
// later word an earlier one.
func environment(words, files []string) (map[string]string, error) {
	env := map[string]string{}
	set := func(word string) error {
		name, value, has := strings.Cut(word, "=")
		if name == "" || strings.ContainsAny(name, " \t\x00") {
			return fmt.Errorf("%q is no variable", word)
		}
		if !has {
			var ok bool
			if value, ok = os.LookupEnv(name); !ok {
				return nil // as Docker does: what is not set here is not set there
			}
		}
		env[name] = value
		return nil
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			l := strings.TrimLeft(lines.Text(), " \t")
			if l == "" || l[0] == '#' {
				continue
			}
			if err := set(l); err != nil {
				return nil, say.Usage("%s:%d: %v", file, n, err)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("--env-file %s: %w", file, err)
		}
	}
	for _, w := range words {
		if err := set(w); err != nil {
			return nil, say.Usage("--env: %v", err)
		}
	}
	return env, nil
}

// parseMount reads HOST:GUEST[:ro].
func parseMount(text string) (manifest.Share, error) {
	parts := strings.Split(text, ":")
	switch {
	case len(parts) < 2 || len(parts) > 3 || parts[0] == "":
		return manifest.Share{}, say.Usage("--mount: %q is not HOST:GUEST[:ro]", text)
	case len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw":
		return manifest.Share{}, say.Usage("--mount: %q: %q is no mount option: ro and rw are", text, parts[2])
	case !filepath.IsAbs(parts[1]) || filepath.Clean(parts[1]) == "/":
		return manifest.Share{}, say.Usage("--mount: %q: %q is not an absolute path below the guest's root", text, parts[1])
	}
	host, err := shareable(parts[0])
	if err != nil {
		return manifest.Share{}, fmt.Errorf("--mount: %w", err)
	}
	return manifest.Share{Host: host, Guest: filepath.Clean(parts[1]), ReadOnly: len(parts) == 3 && parts[2] == "ro"}, nil
}

// shareable returns the real path of a directory that may be shared.
func shareable(dir string) (string, error) {
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			dir = filepath.Join(home, rest)
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", fmt.Errorf("share %s: %w", dir, err)
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", fmt.Errorf("share %s: %w", dir, err)
	}
	if !st.IsDir() {
		return "", fmt.Errorf("share %s: not a directory", dir)
	}
	if real == "/" {
		return "", say.WithHint(fmt.Errorf("share %s: that is the whole host", dir), "go to the directory to work in, or name it with --workspace DIR")
	}
	if home, err := os.UserHomeDir(); err == nil {
		if h, err := filepath.EvalSymlinks(home); err == nil && h == real {
			return "", say.WithHint(fmt.Errorf("share %s: that is your whole home directory, with every key in it", dir), "go to the directory to work in, or name it with --workspace DIR")
		}
	}
	return real, nil
}
