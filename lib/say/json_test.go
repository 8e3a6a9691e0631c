package say

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestJSON: nothing that a terminal acts on or hides is in it, and it says the same.
func TestJSON(t *testing.T) {
	for _, text := range []string{"a\x1b[31m\nb\x00", "c\u009b31m\u007f", "\u202egnp.exe\u200b\ufeff", "\U000e0041", "caf\u00e9 \u65e5\u672c \U0001f600", "\u2028"} {
		var out bytes.Buffer
		if err := JSON(&out).Encode(map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(strings.TrimSuffix(out.String(), "\n"), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q is written %q", text, out.String())
		}
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back[text] != text {
			t.Errorf("%q comes back as %q, %v", text, back, err)
		}
	}
	var out bytes.Buffer
	if JSON(&out).Encode("caf\u00e9"); out.String() != "\"caf\u00e9\"\n" {
		t.Errorf("what can be shown is written %q", out.String())
	}
}
