package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/say"

	"github.com/spf13/pflag"
)

// options are the words of one call of sb-run.
type options struct {
	target  string
	command []string
	changes []string // the flags that were given and say what the sandbox is

	rules     manifest.Rules
	secrets   []string
	env       map[string]string
	workspace string // "": the profile's default
	clone     bool
	workdir   string
	mounts    []manifest.Share
	choices   profile.Workspace
	shareHome bool
	cpus      int
	memory    manifest.Size
	disk      manifest.Size
	user      string
	accel     string
	cold      bool
	image     string
	rebuild   bool
	noState   bool
	mcp       []string

	tty, noTTY, interactive bool
	terminal                string // "": the configuration's, or filter
	showLog, noInput        bool
	undo, noUndo            bool
	print                   string // "", toml or sh
}

// words are the flags that are taken apart after all are read.
type words struct {
	env, envFiles, mounts []string
	memory, disk          string
}

func parseOptions(args []string) (*options, error) {
	o := &options{}
	flags := say.Flags("sb-run", "TARGET [flags] [-- CMD…]",
		"Runs a command in a machine of its own that reaches what its rules allow and nothing else.\n"+
			"TARGET is a profile (shell), an image (debian:bookworm, bootstrap:bookworm, oci:DIR …) or a manifest file (./sandbox.toml).")
	addVerbs(flags)
	w := o.flags(flags)
	if err := say.Parse(flags, args); err != nil {
		return nil, err
	}
	if err := o.take(flags); err != nil {
		return nil, err
	}
	if err := o.check(flags); err != nil {
		return nil, err
	}
	if err := o.sizes(flags, w); err != nil {
		return nil, err
	}
	var err error
	if o.env, err = environment(w.env, w.envFiles); err != nil {
		return nil, err
	}
	for _, m := range w.mounts {
		share, err := parseMount(m, o.shareHome)
		if err != nil {
			return nil, err
		}
		o.mounts = append(o.mounts, share)
	}
	return o, nil
}

// flags defines the flags: first those that say what the sandbox is, then those
// that are about this call alone (ofThisCall).
func (o *options) flags(flags *pflag.FlagSet) *words {
	w := &words{}
	flags.StringArrayVar(&o.rules.Allow, "allow", nil, "allow what `RULE` says: a host, *.suffix, address or range, with a :port where wanted")
	flags.StringArrayVar(&o.rules.Deny, "deny", nil, "deny what `RULE` says, whatever allows it")
	flags.StringArrayVar(&o.secrets, "secret", nil, "let requests from inside use the secret `NAME[@HOST]` (or github:OWNER/REPO), and allow its hosts; the guest sees a placeholder")
	flags.StringArrayVarP(&w.env, "env", "e", nil, "set `NAME[=VALUE]` in the guest; without a value, to the one here")
	flags.StringArrayVar(&w.envFiles, "env-file", nil, "read variables from `FILE`, one NAME[=VALUE] a line")
	flags.StringVarP(&o.workspace, "workspace", "w", "", "share `DIR` with the guest, at the same path, and start there; a profile shares the current directory")
	flags.BoolVar(&o.clone, "clone", false, "have the guest work in a clone of the workspace's git repository, which it sees read-only")
	flags.StringVar(&o.workdir, "workdir", "", "start the command in `DIR` of the guest")
	flags.StringArrayVarP(&w.mounts, "mount", "v", nil, "share `HOST:GUEST[:ro|:copy]`, a directory, with the guest; a copy is its own")
	flags.StringVar(&o.image, "image", "", "run a profile in the image `REF` instead of its own")
	flags.BoolVar(&o.rebuild, "rebuild", false, "make a profile's environment anew")
	flags.StringArrayVar(&o.choices.Protect, "protect", nil, "let the guest read `PATH` of the workspace and not change it, besides what is always so (sb-run(1)); without a slash, that name anywhere")
	flags.BoolVar(&o.choices.NoProtect, "no-protect", false, "let the guest change what programs of this host run by themselves, such as .git/hooks")
	flags.StringArrayVar(&o.choices.Hide, "hide", nil, "do not show the guest `PATH` of the workspace")
	flags.StringArrayVar(&o.choices.Private, "private", nil, "give the guest a directory of its own at `DIR` of the workspace, on its disk; auto: where a lock file says how to fill it")
	flags.BoolVar(&o.shareHome, "share-home", false, "allow sharing your whole home directory; known files with keys are hidden")
	flags.StringArrayVar(&o.mcp, "mcp", nil, "give a profile's agent the MCP server `NAME`: filesystem, git, github, fetch …")
	flags.BoolVar(&o.noState, "no-state", false, "begin without what earlier sandboxes of the profile left, and keep nothing")
	flags.IntVar(&o.cpus, "cpus", 0, "give the machine `N` processors (default 2)")
	flags.StringVar(&w.memory, "memory", "", "give the machine `SIZE` of memory (default 2g)")
	flags.StringVar(&w.disk, "disk", "", "let the machine's disk grow to `SIZE` (default 16g)")
	flags.StringVar(&o.user, "user", "", "run as `NAME|UID[:GROUP]`, a user of the image")
	flags.StringVar(&o.accel, "accel", "", "run the machine by `HOW`: auto, kvm or tcg (default auto)")

	flags.BoolVar(&o.cold, "cold", false, "boot the machine, do not start it from memory")
	flags.BoolVar(&o.undo, "undo", false, "record the working directory first, for sb-run undo")
	flags.BoolVar(&o.noUndo, "no-undo", false, "record nothing, whatever config.toml says")
	flags.BoolVar(&o.showLog, "show-policy-log", false, "print the audit log to stderr at the end")
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "keep stdin open (it always is; for those who type -it)")
	flags.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal; the default if stdin and stdout are one")
	flags.BoolVar(&o.noTTY, "no-tty", false, "give the command no terminal")
	flags.StringVar(&o.terminal, "terminal", "", terminalUsage)
	flags.StringVar(&o.print, "print", "", "print the sandbox's manifest (`toml|sh`), or a script that does the same, and run no command")
	flags.Lookup("print").NoOptDefVal = "toml"
	flags.BoolVar(&o.noInput, "no-input", false, "never ask anything")
	return w
}

const terminalUsage = "write to a terminal what `HOW` says: filter or raw, everything (default filter)"

// ofThisCall are the flags that say nothing of what the sandbox is.
var ofThisCall = map[string]bool{"undo": true, "no-undo": true, "show-policy-log": true, "interactive": true, "tty": true, "no-tty": true, "terminal": true, "print": true, "no-input": true, "cold": true}

// addVerbs has the help list what else sb-run does.
func addVerbs(flags *pflag.FlagSet) {
	usage := flags.Usage
	flags.Usage = func() {
		usage()
		fmt.Fprint(os.Stdout, "\nverbs:\n")
		for _, v := range verbs() {
			fmt.Fprintf(os.Stdout, "  %-45s %s\n", v.Name+" "+v.Args, v.Text)
		}
	}
}

// take takes TARGET and the command apart.
func (o *options) take(flags *pflag.FlagSet) error {
	args, dash := flags.Args(), flags.ArgsLenAtDash()
	if dash >= 0 {
		args, o.command = args[:dash], args[dash:]
	}
	switch {
	case len(args) == 0:
		target, err := projectTarget()
		if err != nil {
			return err
		}
		if target != "" {
			o.target = target
			return nil
		}
		return say.WithHint(say.Usage("sb-run needs a target"), "sb-run shell runs a shell in this directory; sb-run --help tells more")
	case len(args) > 1:
		return wordTooMany(args)
	}
	o.target = args[0]
	return nil
}

// check refuses values that cannot be meant. One that is empty most likely comes
// from a variable that is not set.
func (o *options) check(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" {
			err = say.WithHint(say.Usage("--%s: its value is empty", f.Name), "give it one, or leave the flag out")
		}
		if !ofThisCall[f.Name] {
			o.changes = append(o.changes, "--"+f.Name)
		}
	})
	switch {
	case err != nil:
		return err
	case o.target == "":
		return say.WithHint(say.Usage("the target is an empty word"), "sb-run shell runs a shell in this directory")
	case o.tty && o.noTTY:
		return say.Usage("--tty and --no-tty exclude each other")
	case o.undo && o.noUndo:
		return say.Usage("--undo and --no-undo exclude each other")
	case o.print != "" && o.print != "toml" && o.print != "sh":
		return say.Usage("--print: %q is neither toml nor sh", o.print)
	case o.accel != "" && o.accel != "auto" && o.accel != "kvm" && o.accel != "tcg":
		return say.Usage("--accel: %q is none of auto, kvm, tcg", o.accel)
	case o.workdir != "" && !filepath.IsAbs(o.workdir):
		return say.Usage("--workdir: %q is not an absolute path", o.workdir)
	}
	if err := o.choices.Check(); err != nil {
		return say.Usage("--%w", err)
	}
	return checkTerminal("--terminal", o.terminal)
}

// sizes reads how large the machine is to be.
func (o *options) sizes(flags *pflag.FlagSet, w *words) (err error) {
	if flags.Changed("cpus") {
		err = checkCPUs("--cpus", o.cpus)
	}
	if err == nil && w.memory != "" {
		if o.memory, err = manifest.ParseSize(w.memory); err != nil {
			return say.Usage("--memory: %w", err)
		}
		err = checkMemory("--memory", o.memory)
	}
	if err == nil && w.disk != "" {
		if o.disk, err = manifest.ParseSize(w.disk); err != nil {
			return say.Usage("--disk: %w", err)
		}
		err = checkDisk("--disk", o.disk)
	}
	return err
}
