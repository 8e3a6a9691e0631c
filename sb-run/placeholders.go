package main

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"sb/lib/binding"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/lib/session"
)

// addPlaceholders puts the placeholders where the guest's programs look for
// credentials. What the user sets himself stays.
func addPlaceholders(m *manifest.Manifest, own map[string]string) {
	if len(m.Credentials) == 0 {
		return
	}
	services := binding.BuiltIn()
	env := trustVariables()
	account := map[string]string{}
	warnShared(m.Credentials, own)
	for _, b := range m.Credentials {
		for _, v := range services.Variables(b) {
			env[v] = b.Placeholder
		}
		account[b.Secret] = b.Placeholder
	}
	for name := range own {
		delete(env, name)
	}
	if m.Run.Env == nil {
		m.Run.Env = map[string]string{}
	}
	maps.Copy(m.Run.Env, env)
	addGit(m)
	if token := account["codex"]; token != "" {
		m.Run.Files = append(m.Run.Files, manifest.File{Path: "~/.codex/auth.json", Text: binding.CodexLogin(token, account["codex-account"]), Mode: "0600", Keep: true})
	}
}

// warnShared says of secrets that have one variable that the last of them has it.
func warnShared(credentials []binding.Binding, own map[string]string) {
	whose := map[string]string{}
	for _, b := range credentials {
		if b.Variable == "" {
			continue
		}
		first, there := whose[b.Variable]
		if _, set := own[b.Variable]; there && !set && first != b.Secret {
			say.Warn("the secrets %s and %s have the same variable, %s: the guest finds the placeholder of %s in it, and none of %s", first, b.Secret, b.Variable, b.Secret, first)
		}
		whose[b.Variable] = b.Secret
	}
}

// trustVariables tell programs that do not ask the system where the certificates
// are that the guest trusts. Some add the file to those they know, the others read
// it instead.
func trustVariables() map[string]string {
	env := map[string]string{}
	for _, v := range []string{"NODE_EXTRA_CA_CERTS", "DENO_CERT"} {
		env[v] = session.TrustedFile
	}
	for _, v := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "PERL_LWP_SSL_CA_FILE"} {
		env[v] = session.BundleFile
	}
	return env
}

// addGit has git present the placeholder to hosts that take it with a user's name, and
// go there by HTTPS where a remote says SSH; and gh know the one repository there is.
func addGit(m *manifest.Manifest) {
	for _, b := range m.Credentials {
		user, ok := strings.CutPrefix(b.Format, "Basic ")
		if !ok {
			continue
		}
		for _, host := range b.Hosts {
			setGit(m, "credential.https://"+host+".helper", fmt.Sprintf(`!f() { test "$1" = get && echo username=%s && echo password=%s; }; f`, user, b.Placeholder))
			setGit(m, "url.https://"+host+"/.insteadOf", "git@"+host+":")
			setGit(m, "url.https://"+host+"/.insteadOf", "ssh://git@"+host+"/")
		}
	}
	for _, b := range m.Credentials {
		if _, set := m.Run.Env["GH_REPO"]; b.GraphQL != "" && !set {
			m.Run.Env["GH_REPO"] = b.GraphQL
		}
	}
}

// setGit adds an entry to those that git takes from its environment.
func setGit(m *manifest.Manifest, key, value string) {
	n, _ := strconv.Atoi(m.Run.Env["GIT_CONFIG_COUNT"])
	m.Run.Env[fmt.Sprintf("GIT_CONFIG_KEY_%d", n)] = key
	m.Run.Env[fmt.Sprintf("GIT_CONFIG_VALUE_%d", n)] = value
	m.Run.Env["GIT_CONFIG_COUNT"] = strconv.Itoa(n + 1)
}

// renewPlaceholders gives a manifest that is run as it stands placeholders of this
// run, wherever those it was printed with stand.
func renewPlaceholders(m *manifest.Manifest) {
	services := binding.BuiltIn()
	fresh, old, ends := map[string]string{}, []string{}, []string{}
	for i := range m.Credentials {
		b := &m.Credentials[i]
		if fresh[b.Secret] == "" {
			fresh[b.Secret] = services.Placeholder(b.Secret)
		}
		if b.Placeholder != "" {
			old = append(old, b.Placeholder, fresh[b.Secret])
			ends = append(ends, keyTail(b.Placeholder), keyTail(fresh[b.Secret]))
		}
		b.Placeholder = fresh[b.Secret]
	}
	renew := strings.NewReplacer(append(old, ends...)...) // a whole one comes before its end
	for k, v := range m.Run.Env {
		m.Run.Env[k] = renew.Replace(v)
	}
	for i := range m.Run.Files {
		m.Run.Files[i].Text = renew.Replace(m.Run.Files[i].Text)
	}
}
