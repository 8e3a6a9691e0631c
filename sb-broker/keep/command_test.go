package keep

import "testing"

// TestCommandsThatFail: what is said of a command that prints no secret names what it
// did instead; the control prints one.
func TestCommandsThatFail(t *testing.T) {
	k := testKeeper(t)
	for name, c := range map[string]struct {
		words      []any
		code, text string
	}{
		"silent": {[]any{"cmd:true"}, "bad-value", "true printed nothing on stdout, and did not fail"},
		"empty":  {[]any{"cmd:echo"}, "bad-value", "echo printed nothing on stdout, and did not fail"},
		"exits":  {[]any{"cmd:sh", "-c", "echo sesame-sesame; exit 3"}, "failed", "sh: exit status 3"},
		"stays":  {[]any{"cmd:sh", "-c", "echo sesame-sesame; sleep 3 &"}, "failed", "sh has ended, and something that it started goes on and holds its output open"},
		"binary": {[]any{"cmd:printf", `\001\002abcdefgh`}, "bad-value", "no visible ASCII character"},
		"much":   {[]any{"cmd:sh", "-c", "yes sesame | head -c 100000"}, "bad-value", "it has more than 16384 bytes"},
	} {
		k.source(t, name, c.words)
		wantFault(t, k, name, c.code, c.text)
	}
	k.source(t, "control", []any{"cmd:sh", "-c", "echo sesame-sesame; sleep 3 >&- 2>&- &"})
	wantRead(t, k, "control", "sesame-sesame")
}
