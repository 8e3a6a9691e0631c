package state

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// credentials are the names of files in which clients keep what signs them in, in
// lower case, as path.Match has them. They come neither in nor out.
var credentials = []string{
	".credentials.json", "*credentials*", "auth.json", "auth.*.json", "oauth*.json", "*_oauth*.json", "mcp-oauth*", "mcp-auth*",
	"google_account*", "*tokens.json", "*token.json", "*tokens.v*.json", "apps.json", "hosts.json", "hosts.yml", "hosts.toml",
	".netrc", ".git-credentials", ".npmrc", ".pypirc", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", "id_ecdsa*", ".env", ".env.*",
}

// Credentials are patterns (path.Match) of such names, in lower case.
func Credentials() []string { return append([]string(nil), credentials...) }

// IsCredential says whether a file, or a directory above it, has such a name.
func IsCredential(name string) bool {
	for part := range strings.SplitSeq(strings.ToLower(name), "/") {
		for _, pattern := range credentials {
			if matched, _ := path.Match(pattern, part); matched {
				return true
			}
		}
	}
	return false
}

// secretKey is a setting that is named like a secret, or holds such: variables and
// headers that a program is given, and programs that print one.
var secretKey = regexp.MustCompile(`(?i)^(env|environment|env_vars|headers|http_headers|env_http_headers)$|token|secret|passw|credential|api[-_]?key|apikeyhelper|authorization|oauth|bearer|cookie|private[-_]?key|awsauthrefresh|otelheaders`)

// secretText is what services' keys look like, and keys in PEM.
var secretText = regexp.MustCompile(`\b(sk|rk|pk)-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}|\bAIza[\w-]{30,}|\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bhf_[A-Za-z0-9]{16,}|\bgsk_[A-Za-z0-9]{16,}|\bxai-[A-Za-z0-9]{16,}|\bnpm_[A-Za-z0-9]{16,}|\bpypi-[\w-]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z ]*PRIVATE KEY-----|$)`)

// taken stands where a secret was.
const taken = "[taken out by sb-run]"

// Clean takes what may be a secret out of a file of the host's: of settings (JSON,
// TOML) what is named like one, and of all what looks like one. The error is about
// settings that cannot be read: nobody can say what is in them.
func Clean(name string, text []byte) ([]byte, error) {
	settings := map[string]any{}
	var out bytes.Buffer
	switch path.Ext(name) {
	case ".json":
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&settings); err != nil {
			return nil, err
		}
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(strip(settings)); err != nil {
			return nil, err
		}
	case ".toml":
		if err := toml.Unmarshal(text, &settings); err != nil {
			return nil, err
		}
		if err := toml.NewEncoder(&out).Encode(strip(settings)); err != nil {
			return nil, err
		}
	default:
		out.Write(text)
	}
	return secretText.ReplaceAll(out.Bytes(), []byte(taken)), nil
}

// strip takes the settings that are named like secrets out of a value.
func strip(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, sub := range v {
			if secretKey.MatchString(key) {
				delete(v, key)
			} else {
				v[key] = strip(sub)
			}
		}
	case []map[string]any: // of tables in TOML
		for i := range v {
			strip(v[i])
		}
	case []any:
		for i, sub := range v {
			v[i] = strip(sub)
		}
	}
	return value
}
