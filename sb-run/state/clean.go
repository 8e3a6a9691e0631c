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
	"secrets", "secrets.*", ".secrets", "api_key*", "api-key*", "apikey*", "service_account*.json", "service-account*.json", "*.ppk", "*.jks", "*.keystore", "*.kdbx", ".pgpass", ".my.cnf",
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
var secretText = regexp.MustCompile(`\b(sk|rk|pk)-[A-Za-z0-9_-]{16,}|\b(sk|rk)_(live|test)_\w{16,}|\b(sbp|ntn|r8|lin_api|figd|dop_v1|dckr_pat|shpat)_[A-Za-z0-9_-]{16,}|\b(tvly|pplx|nvapi|ctx7sk|GOCSPX)-[A-Za-z0-9_-]{16,}|\bya29\.[\w-]{16,}|\bSG\.[\w-]{16,}\.[\w-]{16,}|hooks\.slack\.com/services/[\w/]{16,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}|\bAIza[\w-]{30,}|\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bhf_[A-Za-z0-9]{16,}|\bgsk_[A-Za-z0-9]{16,}|\bxai-[A-Za-z0-9]{16,}|\bnpm_[A-Za-z0-9]{16,}|\bpypi-[\w-]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z ]*PRIVATE KEY-----|$)`)

// inText are secrets within a string of settings, as in the words of a server's command
// (--api-key=X, -e TOKEN=X, Authorization: Bearer X, ?key=X): what stands behind a name.
var inText = regexp.MustCompile(`(?i)([\w.-]*(?:token|secret|passw|credential|api[-_]?key|authorization|cookie|private[-_]?key|[?&](?:key|sig|auth))[\w.-]*["']?\s*[=:]\s*["']?(?:(?:bearer|basic|token)\s+)?)([^\s"'&,;]+)`)

// aVariable is what stands for a value that is elsewhere: $T, ${T}, {env:T}.
var aVariable = regexp.MustCompile(`^(\$\w+|\$?\{(env:)?\w+\})$`)

// byFlag is a word by which a program is told a secret in the next one.
var byFlag = regexp.MustCompile(`(?i)^--?[\w.-]*(token|secret|passw|credential|api[-_]?key|auth|cookie|private[-_]?key)[\w.-]*$`)

// inAddress is the password in an address.
var inAddress = regexp.MustCompile(`([A-Za-z][\w+.-]*://[^\s/"'@:]*:)[^\s/"'@]+@`)

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
	text = secretText.ReplaceAll(out.Bytes(), []byte(taken))
	return inAddress.ReplaceAll(text, []byte("${1}"+taken+"@")), nil
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
			if flag, word := words(v, i); byFlag.MatchString(flag) && !strings.HasPrefix(word, "-") && !aVariable.MatchString(word) {
				v[i] = taken
			}
		}
	case string:
		return inText.ReplaceAllStringFunc(v, func(found string) string {
			if m := inText.FindStringSubmatch(found); !aVariable.MatchString(m[2]) {
				return m[1] + taken
			}
			return found
		})
	}
	return value
}

// words are the one before a list's i-th and that one, "" where one is none.
func words(list []any, i int) (before, word string) {
	if word, _ = list[i].(string); i > 0 && word != "" {
		before, _ = list[i-1].(string)
	}
	return before, word
}
