// Package reach finds out by which means this machine reaches what packages come
// from, and builds environments of profiles by them. On most machines there is
// nothing to find out: names resolve to public addresses, and certificates are of
// authorities that every distribution has. In an office names may lead to a mirror
// inside, and certificates be those of a proxy. A user tells sb so, by a rule with an
// address and by a step of his profile; here both are read off the machine's own
// configuration.
package reach

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"sb/lib/class"
)

// Means is what is not as on any machine. The zero Means is that nothing is.
type Means struct {
	Trust    string   // authorities beyond the distribution's, in PEM
	Allow    []string // rules for the hosts whose names lead to no public address
	Registry string   // npm's, if it is not npm's own default
}

// Find reads the machine's configuration.
func Find(ctx context.Context) (*Means, error) {
	m := &Means{}
	registry, preset := NPMRegistry(), npmConfig("registry", true)
	if registry != preset {
		m.Registry = registry
	}
	var err error
	if m.Trust, err = authorities(); err != nil {
		return nil, err
	}
	own, err := class.HostAddrs()
	if err != nil {
		return nil, err
	}
	for _, host := range Hosts(slices.Concat([]string{registry, PyPI()}, GoProxies(), AptSources())) {
		found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host) // who needs it says that it is not there
		for _, a := range found {
			if own.Of(a) != "" {
				m.Allow = append(m.Allow, fmt.Sprintf("%s@%s", host, a.Unmap()))
			}
		}
	}
	slices.Sort(m.Allow)
	m.Allow = slices.Compact(m.Allow)
	return m, nil
}

// Step is the step of a profile that brings the guest what is to be trusted, "" if
// there is nothing.
func (m *Means) Step() string {
	var b strings.Builder
	if m.Trust != "" {
		fmt.Fprintf(&b, "cat >/usr/local/share/ca-certificates/network.crt <<'END'\n%sEND\n", m.Trust)
		b.WriteString("cat /usr/local/share/ca-certificates/network.crt >>/etc/ssl/certs/ca-certificates.crt\n")
		b.WriteString("npm config set --location=global cafile /etc/ssl/certs/ca-certificates.crt\n")
	}
	if m.Registry != "" {
		fmt.Fprintf(&b, "npm config set --location=global registry '%s'\n", m.Registry)
	}
	if b.Len() == 0 {
		return ""
	}
	return "# the authorities and the registry of this network\n" + b.String()
}

// Profile is the text of a profile with that step as its first.
func (m *Means) Profile(text string) (string, error) {
	step := m.Step()
	if step == "" {
		return text, nil
	}
	before, after, ok := strings.Cut(text, "\ninstall = [")
	if !ok || strings.Contains(step, "'''") {
		return "", fmt.Errorf("the profile has no list of steps that another one can be put before:\n%.300s", text)
	}
	return before + "\ninstall = ['''\n" + step + "''', " + after, nil
}

// Config is a configuration with those rules.
func (m *Means) Config() string {
	if len(m.Allow) == 0 {
		return ""
	}
	return fmt.Sprintf("[rules]\nallow = [%s]\n", `"`+strings.Join(m.Allow, `", "`)+`"`)
}

// Hosts are those of addresses.
func Hosts(addresses []string) (hosts []string) {
	for _, a := range addresses {
		if u, err := url.Parse(a); err == nil && u.Hostname() != "" && !slices.Contains(hosts, u.Hostname()) {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// asked is what a program of this machine answers, "" if it is not there.
func asked(env []string, name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// NPMRegistry is where this machine's npm has packages from.
func NPMRegistry() string { return npmConfig("registry", false) }

// npmConfig is a key of npm's configuration; preset: with nothing configured.
func npmConfig(key string, preset bool) string {
	var env []string
	if preset {
		env = []string{"npm_config_userconfig=/dev/null", "npm_config_globalconfig=/dev/null/none", "npm_config_" + key + "=", "NPM_CONFIG_" + strings.ToUpper(key) + "="}
	}
	if said := asked(env, "npm", "config", "get", key); said != "null" && said != "undefined" {
		return said
	}
	return ""
}

// GoProxies are the module proxies of this machine's Go.
func GoProxies() []string {
	return strings.FieldsFunc(asked(nil, "go", "env", "GOPROXY"), func(r rune) bool { return r == ',' || r == '|' })
}

// AptSources are where this machine's apt has packages from.
func AptSources() []string {
	return strings.Fields(asked(nil, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"))
}

// pipDefault is what pip's help says of its index.
var pipDefault = regexp.MustCompile(`\(default:?\s+(https?://[^\s)]+)\)`)

// PyPI is the index of this machine's pip, "" if there is no pip.
func PyPI() string {
	if set := asked(nil, "python3", "-m", "pip", "config", "get", "global.index-url"); set != "" {
		return set
	}
	if set := os.Getenv("PIP_INDEX_URL"); set != "" {
		return set
	}
	if m := pipDefault.FindStringSubmatch(asked(nil, "python3", "-m", "pip", "help", "install")); m != nil {
		return m[1]
	}
	return ""
}
