package say

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

// Flags returns the flag set of a command. synopsis is what follows the
// command's name in its usage line; text says what it does, in a sentence or
// two. Parse it with Parse.
func Flags(command, synopsis, text string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(command, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetInterspersed(true)
	fs.Usage = func() {
		fmt.Fprintf(os.Stdout, "usage: %s\n\n%s\n", strings.TrimSpace(command+" "+synopsis), strings.TrimSpace(text))
		if fs.HasAvailableFlags() {
			fmt.Fprintf(os.Stdout, "\nflags:\n%s", flagUsages(fs))
		}
	}
	return fs
}

var (
	flagUsage     = regexp.MustCompile(`(?m)^( *\S+(?: \S+)*)  +(\S.*)$`)
	optionalValue = regexp.MustCompile(`(--\S+) (\S+)\[="[^"]*"\]`)
)

// flagUsages is pflag's, without what tells a reader nothing: that a switch may
// be given a value, and the -1 that stands for no descriptor. A value that may
// be left out needs its =.
func flagUsages(fs *pflag.FlagSet) string {
	text := strings.NewReplacer("[=true|false]", "", " (default -1)", "").Replace(fs.FlagUsages())
	text = optionalValue.ReplaceAllString(text, "$1[=$2]")
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	io.WriteString(w, flagUsage.ReplaceAllString(text, "$1\t$2"))
	w.Flush()
	return b.String()
}

// Parse reads args into fs. Asked for help it prints the usage to stdout and
// returns pflag.ErrHelp, which Main takes for success; asked for the version
// (--version) it prints that and returns the same. Anything it does not
// understand is a Usage error.
func Parse(fs *pflag.FlagSet, args []string) error {
	version := fs.Bool("version", false, "print the version and exit")
	if err := fs.Parse(args); err != nil {
		if err == pflag.ErrHelp {
			return err
		}
		return WithHint(Usage("%v", err), "%s --help lists the flags", fs.Name())
	}
	if *version {
		fmt.Printf("%s %s\n", strings.Fields(fs.Name())[0], Version)
		return pflag.ErrHelp
	}
	return nil
}

// Verb is one of the commands of a tool: `sb-image pull`.
type Verb struct {
	Name string
	Args string // what follows the verb in the usage line
	Text string // one line
	Run  func(args []string) error
}

// Verbs runs the verb that args[0] names. Without one, or with one it does not
// know, it is a Usage error that lists them.
func Verbs(command, text string, verbs []Verb, args []string) error {
	if len(args) > 0 {
		for _, v := range verbs {
			if v.Name == args[0] {
				return v.Run(args[1:])
			}
		}
		switch args[0] {
		case "-h", "--help", "help":
			fmt.Print(verbUsage(command, text, verbs))
			return pflag.ErrHelp
		case "--version":
			fmt.Printf("%s %s\n", command, Version)
			return pflag.ErrHelp
		}
		return WithHint(Usage("%s has no verb %q", command, args[0]), "%s --help lists the verbs", command)
	}
	return WithHint(Usage("%s needs a verb", command), "%s --help lists the verbs", command)
}

func verbUsage(command, text string, verbs []Verb) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s VERB [flags] …\n\n%s\n\nverbs:\n", command, strings.TrimSpace(text))
	for _, v := range verbs {
		fmt.Fprintf(&b, "  %-28s %s\n", strings.TrimSpace(v.Name+" "+v.Args), v.Text)
	}
	return b.String()
}
