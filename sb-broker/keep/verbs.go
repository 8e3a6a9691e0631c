package keep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"sb/lib/binding"
	"sb/lib/say"
)

// names checks words of the command line.
func checkNames(words []string) error {
	for _, name := range words {
		if !binding.ValidSecret(name) {
			err := say.Usage("%.80q is no name of a secret: lower-case letters, digits, -, _ and ., at most %d", name, binding.MaxName)
			if kept := name[:max(strings.IndexAny(name, "@:"), 0)]; binding.ValidSecret(kept) {
				return say.WithHint(err, "where it goes is said at the run (--secret %s): it is kept as %s", name, kept)
			}
			return err
		}
	}
	return nil
}

// set keeps a secret.
func setVerb(args []string) error {
	flags := say.Flags(command()+" set", "NAME [--stdin]",
		"Keeps a secret in the system's keychain, or in an encrypted file where there is none. It is asked for, or read from stdin: never an argument.")
	stdin := flags.Bool("stdin", false, "read it from stdin, without the line break at its end")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return say.WithHint(say.Usage("%s set needs the name of one secret", command()), "the value is no argument: others could see it; it is asked for, or comes by --stdin")
	}
	name := flags.Arg(0)
	if err := checkNames(flags.Args()); err != nil {
		return err
	}
	k, err := newKeeper()
	if err != nil {
		return err
	}
	if err := k.takeGiven(nil, nil); err != nil {
		return err
	}
	if k.settings.Store.Kind == "file" || k.settings.Store.Kind == "" && k.keys.there() != nil {
		// Said before the value is asked for.
		if _, _, err := k.identity(context.Background()); err != nil {
			return fmt.Errorf("keep the secret %s: %w", name, err)
		}
	}
	value, err := askFor(name, *stdin)
	if err != nil {
		return err
	}
	defer clear(value)
	if err := checkValue(value); err != nil {
		return fmt.Errorf("keep the secret %s: %w", name, err)
	}
	kind, err := k.keep(context.Background(), name, value)
	if err != nil {
		return err
	}
	where := "in the system's keychain"
	if kind == inFile {
		where = "encrypted in " + k.file(name, inFile)
	}
	say.Note("%s is kept %s", name, where)
	if s, ok := k.settings.Sources[name]; ok {
		say.Warn("config.toml has a source for %s (%s), which comes first", name, s)
	}
	return nil
}

// entry is what is said of a secret.
type entry struct {
	Name      string   `json:"name"`
	Where     string   `json:"where"`
	Variables []string `json:"variables"`
	Hosts     []string `json:"hosts"`
	Error     string   `json:"error,omitempty"`
}

// known are the names of all secrets that are somewhere.
func (k *keeper) known() ([]string, error) {
	names, err := k.keptNames()
	if err != nil {
		return nil, fmt.Errorf("list the secrets: %w", err)
	}
	names = slices.AppendSeq(names, maps.Keys(k.settings.Sources))
	for name, l := range k.logins {
		if l.there() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (k *keeper) entry(name string) entry {
	e := entry{Name: name, Variables: []string{}, Hosts: []string{}}
	e.Where, _ = k.find(name)
	bindings, _ := k.services.Find(name, k.settings.Bindings)
	for _, b := range bindings {
		e.Variables = append(e.Variables, k.services.Variables(b)...)
		for _, h := range b.Hosts {
			if !slices.Contains(e.Hosts, h) {
				e.Hosts = append(e.Hosts, h)
			}
		}
	}
	return e
}

// list lists the secrets.
func listVerb(args []string) error {
	flags := say.Flags(command()+" ls", "[--json]", "Lists the secrets: where each is, in which variables a guest has its placeholder, and where it goes.")
	asJSON := flags.Bool("json", false, "as JSON")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("%s ls takes no names, got %q", command(), flags.Arg(0))
	}
	k, err := newKeeper()
	if err != nil {
		return err
	}
	names, err := k.known()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		say.Note("there is no secret; sb-run secret set NAME keeps one")
	}
	entries := []entry{}
	for _, name := range names {
		entries = append(entries, k.entry(name))
	}
	return show(entries, *asJSON, func(e entry) []string {
		return []string{e.Name, e.Where, orNone(e.Variables), orNone(e.Hosts)}
	})
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}

func show(entries []entry, asJSON bool, row func(entry) []string) error {
	if asJSON {
		lines := json.NewEncoder(os.Stdout)
		for _, e := range entries {
			if err := lines.Encode(e); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, e := range entries {
		fmt.Fprintln(w, say.Safe(strings.Join(row(e), "\t")))
	}
	return w.Flush()
}

// check reads secrets, and says which can be.
func checkVerb(args []string) error {
	flags := say.Flags(command()+" check", "[--json] [NAME…]", "Reads the secrets, all or those named, as a run would, and says which can be read. A sign-in is refreshed if need be.")
	asJSON := flags.Bool("json", false, "as JSON")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if err := checkNames(flags.Args()); err != nil {
		return err
	}
	k, err := newKeeper()
	if err != nil {
		return err
	}
	names := flags.Args()
	if len(names) == 0 {
		if names, err = k.known(); err != nil {
			return err
		}
	}
	entries, failed := []entry{}, false
	for _, name := range names {
		e := k.entry(name)
		err := k.takeGiven(nil, []string{name})
		if err == nil {
			var value []byte
			value, _, err = k.read(context.Background(), name)
			clear(value)
		}
		if err != nil {
			failed, e.Error = true, err.Error()
			say.Report(os.Stderr, err)
		}
		entries = append(entries, e)
	}
	err = show(entries, *asJSON, func(e entry) []string {
		state := "ok"
		if e.Error != "" {
			state = "failed"
		}
		return []string{state, e.Name, e.Where}
	})
	if err == nil && failed {
		return say.Exit(say.CodeFailed)
	}
	return err
}

// remove forgets secrets.
func removeVerb(args []string) error {
	flags := say.Flags(command()+" rm", "NAME…", "Forgets secrets that `set` kept. Sources of config.toml and sign-ins are not touched.")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return say.Usage("%s rm needs the name of a secret", command())
	}
	if err := checkNames(flags.Args()); err != nil {
		return err
	}
	k, err := newKeeper()
	if err != nil {
		return err
	}
	for _, name := range flags.Args() {
		kind := k.kept(name)
		if kind == "" {
			none := fmt.Errorf("forget the secret %s: none of that name is kept", name)
			if where, _ := k.find(name); where != "" {
				none = fmt.Errorf("%w; it is %s, which is yours", none, where)
			}
			err = errors.Join(err, none)
			continue
		}
		err = errors.Join(err, k.forget(context.Background(), name, kind))
	}
	return err
}

// login says whether a client's sign-in is here and good, after refreshing it if
// need be.
func loginVerb(args []string) error {
	flags := say.Flags(command()+" login", "claude|codex", "Says whether a client's sign-in on this host can be used, and until when; an old one is refreshed.")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	k, err := newKeeper()
	if err != nil {
		return err
	}
	l, ok := k.logins[flags.Arg(0)]
	if !ok || flags.NArg() != 1 {
		return say.Usage("%s login needs the name of a sign-in: %s", command(), strings.Join(slices.Sorted(maps.Keys(k.logins)), " or "))
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	if !l.there() {
		return say.WithHint(fmt.Errorf("nobody is signed in with %s on this host: %s is not there", l.client, l.path), "sign in: %s", l.how)
	}
	t, err := l.fresh(ctx)
	if err != nil {
		return err
	}
	until := ""
	if !t.expires.IsZero() {
		until = " until " + t.expires.Format("2006-01-02 15:04 MST") + ", and refreshed then"
	}
	fmt.Printf("the sign-in of %s is good%s\n", l.client, until)
	return nil
}
