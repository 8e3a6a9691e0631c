package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/binding"
	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// secret becomes `sb-broker keep`, whose verbs these are: sb-run holds no secret. What
// is wrong with the configuration is said here, where all of it is known.
func secret(args []string) error {
	if _, err := loadConfig(); err != nil {
		return err
	}
	path, err := tool("sb-broker")
	if err != nil {
		return err
	}
	err = unix.Exec(path, append([]string{binding.SecretVerb, "keep"}, args...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}

// judgeSecrets refuses the secrets that are asked for by words that mean none, before
// anything is fetched for a sandbox that cannot be.
func judgeSecrets(o *options, c *config, p *profile.Profile) error {
	services := binding.BuiltIn()
	for _, word := range slices.Concat(p.Secrets, c.Secrets, o.secrets) {
		if _, err := services.Find(word, c.Bindings); err != nil {
			return badSecret(word, err)
		}
	}
	return nil
}

func badSecret(word string, err error) error {
	if word == "" {
		word = `""`
	}
	return say.Usage("secret %s: %w", word, err)
}

// addSecrets gives the sandbox what the profile, the configuration and the call
// ask for: placeholders in its environment, and the rules that lead to the hosts.
func addSecrets(m *manifest.Manifest, o *options, c *config, p *profile.Profile) error {
	services := binding.BuiltIn()
	placeholders := map[string]string{}
	var done []string
	tried, err := kept(m.Shares, c, p.TrySecrets)
	if err != nil {
		return err
	}
	if len(p.TrySecrets) > 0 && len(slices.Concat(tried, p.Secrets, c.Secrets, o.secrets)) == 0 {
		say.Note("no secret is kept for it: sb-run secret set %s keeps one (it looks for %s)", p.TrySecrets[0], strings.Join(p.TrySecrets, ", "))
	}
	for _, word := range slices.Concat(tried, p.Secrets, c.Secrets, o.secrets) {
		if slices.Contains(done, word) {
			continue
		}
		done = append(done, word)
		found, err := services.Find(word, c.Bindings)
		if err != nil {
			return badSecret(word, err)
		}
		for _, b := range found {
			if placeholders[b.Secret] == "" {
				placeholders[b.Secret] = services.Placeholder(b.Secret)
			}
			b.Placeholder = placeholders[b.Secret]
			m.Credentials = append(m.Credentials, b)
		}
	}
	if err := openHosts(m, c); err != nil {
		return err
	}
	addPlaceholders(m, o.env)
	return nil
}

// kept are those of some secrets that can be read, for a profile that uses what
// there is. A sign-in gives way to a key for the same host: a client given both
// uses one of them, and which is not said.
func kept(shares []manifest.Share, c *config, names []string) (found []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	path, err := tool("sb-broker")
	if err != nil {
		return nil, err
	}
	if err := keyApart(shares, c); err != nil {
		return nil, err
	}
	hosts := map[string]bool{}
	for _, name := range names {
		all, err := binding.BuiltIn().Find(name, c.Bindings)
		if err != nil {
			return nil, say.Usage("try-secrets: %s: %w", name, err)
		}
		if hosts[all[0].Hosts[0]] {
			continue
		}
		if source := c.Sources[name]; source.FD() < 0 { // what comes by a descriptor can be read once
			if err := secretApart(shares, name, source); err != nil {
				return nil, err // before it is read, which may run it
			}
			check := exec.Command(path, "keep", "check", name)
			check.Stdin, check.Env = os.Stdin, keeperEnvironment(shares)
			if check.Run() != nil {
				continue
			}
		}
		hosts[all[0].Hosts[0]] = true
		found = append(found, name)
	}
	return found, nil
}

// openHosts adds the rules that a credential needs to be of use, and says so. What
// a rule denies stays denied: then there is nothing to run.
func openHosts(m *manifest.Manifest, c *config) error {
	set, err := ruleSet(m)
	if err != nil {
		return err
	}
	for _, b := range m.Credentials {
		for _, host := range b.Hosts {
			v, err := reaches(set, b, host)
			if err != nil {
				return err
			}
			allow := host + ":443"
			if v.Allow || slices.Contains(m.Rules.Allow, allow) {
				continue
			}
			say.Note("the secret %s goes to %s: that host is allowed (--allow %s)", b.Secret, host, allow)
			m.Rules.Allow = append(m.Rules.Allow, allow)
		}
	}
	return nil
}

func ruleSet(m *manifest.Manifest) (*rule.Set, error) {
	return rule.Load(rule.Source{Origin: "the rules", Allow: m.Rules.Allow, Deny: m.Rules.Deny})
}

// reaches judges the host of a binding; the error is that a rule denies it.
func reaches(set *rule.Set, b binding.Binding, host string) (rule.Verdict, error) {
	name, err := rule.ParseName(host)
	if err != nil {
		return rule.Verdict{}, err
	}
	v := set.Dial(name, rule.TCP, 443)
	if v.Reason == reason.DenyRule {
		return v, say.WithHint(fmt.Errorf("the secret %s is for %s, which the rule %q denies", b.Secret, host, v.Rule),
			"take the deny rule away, or run without the secret")
	}
	return v, nil
}

// manifestSecrets sees to the credentials that a manifest asks for. It may come
// from anybody: the user is asked about each.
func manifestSecrets(m *manifest.Manifest, o *options) error {
	if len(m.Credentials) == 0 {
		return nil
	}
	set, err := ruleSet(m)
	if err != nil {
		return err
	}
	for _, b := range m.Credentials {
		for _, host := range b.Hosts {
			v, err := reaches(set, b, host)
			if err == nil && !v.Allow {
				err = say.WithHint(fmt.Errorf("the secret %s is for %s, which no rule allows", b.Secret, host), "add %q to rules.allow of %s", host+":443", o.target)
			}
			if err != nil {
				return err
			}
		}
	}
	if o.print == "" {
		if err := confirmSecrets(o, m.Credentials); err != nil {
			return err
		}
	}
	// One that was printed has its placeholders where they belong, one that was
	// written by hand has none.
	printed := slices.ContainsFunc(m.Credentials, func(b binding.Binding) bool { return b.Placeholder != "" })
	renewPlaceholders(m)
	if !printed {
		addPlaceholders(m, maps.Clone(m.Run.Env))
	}
	return nil
}

// secretNames are the secrets that the keeper is to hand out, each once.
func secretNames(m *manifest.Manifest) (names []string) {
	for _, b := range m.Credentials {
		if !slices.Contains(names, b.Secret) {
			names = append(names, b.Secret)
		}
	}
	return names
}

// outOfReach refuses a secret whose source the guest could read, or change, where
// it is shared.
func outOfReach(m *manifest.Manifest, c *config) error {
	for _, name := range secretNames(m) {
		s, written := c.Sources[name]
		if dir := signIn(name); dir != "" && !written {
			s = binding.Source{Kind: "file", Words: []string{dir, dir + "/.credentials.json", dir + "/auth.json"}}
		}
		if err := secretApart(m.Shares, name, s); err != nil {
			return err
		}
	}
	if len(m.Credentials) == 0 {
		return nil
	}
	for _, file := range c.Broker.Roots {
		if host, found := keep.Inside(m.Shares, homePath(file)); found {
			return say.WithHint(fmt.Errorf("broker.roots: %s lies in %s, which is shared with the guest: it could have any server trusted", file, host), "keep it elsewhere")
		}
	}
	return keyApart(m.Shares, c)
}

func secretApart(shares []manifest.Share, name string, s binding.Source) error {
	return apart(shares, "the secret "+name, s, "keep it elsewhere: sb-run secret set "+name)
}

func keyApart(shares []manifest.Share, c *config) error {
	return apart(shares, "the key of the secrets", c.Store.Key, "move it elsewhere, and say where under [store] of config.toml")
}

// apart says whether a source lies where no share has it: a file that the guest
// could read, a program or a script of it that the guest could change.
func apart(shares []manifest.Share, what string, s binding.Source, hint string) error {
	paths := []string{}
	switch s.Kind {
	case "file":
		shares, paths = slices.Clone(shares), s.Words
		for i := range shares {
			shares[i].ReadOnly = false // to read it is enough
		}
	case "cmd":
		if found, err := exec.LookPath(s.Words[0]); err == nil {
			paths = append(paths, found)
		}
		for _, word := range s.Words[1:] {
			if _, err := os.Stat(homePath(word)); err == nil {
				paths = append(paths, word)
			}
		}
	}
	for _, path := range paths {
		if host, found := keep.Inside(shares, homePath(path)); found {
			return say.WithHint(fmt.Errorf("%s: %s, which it is read from, lies in %s, which is shared with the guest", what, path, host), "%s", hint)
		}
	}
	return nil
}

// keeperEnvironment is ours, of which a source or a keychain may need any; the
// broker gets none. Programs are not looked for where the guest could put one, or in
// a place that depends on where sb-run was called.
func keeperEnvironment(shares []manifest.Share) []string {
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, found := keep.Inside(shares, dir)
		return found || !filepath.IsAbs(dir)
	})
	return append(os.Environ(), "PATH="+strings.Join(path, string(filepath.ListSeparator)))
}

// signIn is the directory in which a client keeps the sign-in of that name.
func signIn(name string) string {
	switch strings.TrimSuffix(name, "-account") {
	case "claude":
		return first(os.Getenv("CLAUDE_CONFIG_DIR"), "~/.claude")
	case "codex":
		return first(os.Getenv("CODEX_HOME"), "~/.codex")
	}
	return ""
}

func homePath(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return home + "/" + rest
		}
	}
	return path
}
