package say

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// JSON is an encoder to w, which may be a terminal: what Safe replaces, and JSON does
// not escape by itself, is written as \uXXXX. It stays the same JSON.
func JSON(w io.Writer) *json.Encoder { return json.NewEncoder(escaping{w}) }

// escaping writes JSON, in which such characters stand in strings alone.
type escaping struct{ w io.Writer }

// Write implements io.Writer.
func (e escaping) Write(p []byte) (int, error) {
	var out []byte
	for _, r := range string(p) {
		if r < 0x7f || unicode.IsPrint(r) {
			out = append(out, string(r)...)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, u)
		}
	}
	if _, err := e.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
