package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Decode reads strict TOML into v: a key that v does not have is an error. Every
// error names the file, the line and the key.
func Decode(file string, text []byte, v any) error {
	md, err := toml.Decode(string(text), v)
	if err != nil {
		return Explain(file, err)
	}
	if unknown := md.Undecoded(); len(unknown) > 0 {
		key := unknown[0]
		return fmt.Errorf("%s:%d: unknown key %s", file, line(text, key), key)
	}
	return nil
}

// Explain words an error of the decoder's: with the file, and the line and the key
// where they are known.
func Explain(file string, err error) error {
	var pe toml.ParseError
	if errors.As(err, &pe) {
		where := ""
		if pe.LastKey != "" {
			where = pe.LastKey + ": "
		}
		return fmt.Errorf("%s:%d: %s%s", file, pe.Position.Line, where, cause(pe))
	}
	if m := typeError.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s:%s: %s: %s", file, m[1], m[2], wrongType(m[3]))
	}
	return fmt.Errorf("%s: %w", file, err)
}

// typeError is how the decoder words a value of the wrong type; it has no type
// of its own for that error.
var typeError = regexp.MustCompile(`^toml: line (\d+) \(last key "(.*?)"\): (.*)$`)

// wrongTypes is what such an error says, in the decoder's words for types.
var wrongTypes = regexp.MustCompile(`^incompatible types: TOML value has type (\S+); destination has type (\S+)$`)

// wrongType says it in those of a file's author.
func wrongType(text string) string {
	m := wrongTypes.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	types := map[string]string{ // the decoder's, and Go's
		"string":  "a string",
		"integer": "a number", "int64": "a number", "float": "a fraction", "float64": "a fraction",
		"boolean": "true or false", "bool": "true or false",
		"slice": "a list: [...]", "[]any": "a list", "array": "a list",
		"map": "a table", "map[string]any": "a table", "table": "a table",
	}
	name := func(t string) string {
		if types[t] == "" {
			return t
		}
		return types[t]
	}
	return fmt.Sprintf("it is %s, and must be %s", name(m[1]), name(m[2]))
}

func cause(pe toml.ParseError) string {
	if pe.Message != "" {
		return pe.Message
	}
	return strings.TrimPrefix(pe.Error(), "toml: ")
}

// line finds the line of a key, for errors: the decoder does not keep it. It
// follows table headers, so that the same key of two tables is told apart; of
// an array of tables it finds the first that has the key. 1 if there is none.
func line(text []byte, key []string) int {
	var table []string
	for i, l := range strings.Split(string(text), "\n") {
		l = strings.TrimSpace(l)
		if h := strings.Trim(l, "[]"); strings.HasPrefix(l, "[") && !strings.Contains(h, "=") {
			table = splitKey(h)
			if equal(table, key) {
				return i + 1
			}
			continue
		}
		k, _, ok := strings.Cut(l, "=")
		if full := append(table[:len(table):len(table)], splitKey(k)...); ok && hasPrefix(key, full) {
			return i + 1
		}
	}
	return 1
}

func splitKey(s string) []string {
	parts := strings.Split(strings.TrimSpace(s), ".")
	for i := range parts {
		parts[i] = strings.Trim(strings.TrimSpace(parts[i]), `"'`)
	}
	return parts
}

func equal(a, b []string) bool { return len(a) == len(b) && hasPrefix(a, b) }

func hasPrefix(key, prefix []string) bool {
	if len(prefix) > len(key) {
		return false
	}
	for i := range prefix {
		if key[i] != prefix[i] {
			return false
		}
	}
	return true
}

// Size is a number of bytes, written as Docker writes it: "512m", "2g".
type Size int64

var units = []struct {
	suffix string
	bytes  int64
}{{"t", 1 << 40}, {"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}, {"b", 1}}

// ParseSize reads a size: digits and one of b, k, m, g, t (powers of 1024,
// either case, an "ib" or "b" behind it allowed). A bare number is bytes.
func ParseSize(s string) (Size, error) {
	num, unit := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for _, u := range units {
		if cut, ok := strings.CutSuffix(strings.TrimSuffix(strings.TrimSuffix(num, "b"), "i"), u.suffix); ok && u.suffix != "b" {
			num, unit = cut, u.bytes
			break
		}
	}
	num = strings.TrimSuffix(num, "b")
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is no size: write it as 512m or 2g", s)
	}
	return Size(n * unit), nil
}

// UnmarshalText reads what MarshalText writes.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// MarshalText writes the size as Docker does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Size) String() string {
	for _, u := range units {
		if int64(s) >= u.bytes && int64(s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.bytes, u.suffix)
		}
	}
	return fmt.Sprintf("%db", int64(s))
}
