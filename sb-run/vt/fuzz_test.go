package vt

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The oracle reads the output with a grammar of its own, of regular expressions, and
// knows by a list of its own what must not be in it.

// token is all that may be written: text, controls, ESC, CSI, OSC and screen's titles.
var token = regexp.MustCompile(`^(?:[\x07-\x0f\x20-\x7e\x{a0}-\x{10ffff}]+` +
	`|\x1b[\x23\x28-\x2f][\x20-\x2f]?[\x30-\x7e]` +
	`|\x1b[6-9=>DEHMVWNOZcno]` +
	`|\x1b\[[<=>?]?[0-9;:]*[\x20-\x2f]{0,2}[\x40-\x7e]` +
	`|\x1b\](?:[^\x00-\x1f\x7f-\x{9f}]*)(?:\x07|\x1b\\)` +
	`|\x1bk(?:[^\x00-\x1f\x7f-\x{9f}]*)\x1b\\)`)

// never is what must not be in a sequence that is written.
var never = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`\x1b\[0*(?:[0-9]|1[0-37]|2[014-9]|[3-9][0-9]|[1-9][0-9]{2,})?(?:;[0-9;]*)?t`, // windows, titles
	`\x1b\[>[0-9;]*[tTpf]`,
	`\x1b\[\??[0-9;]*i`,
	`\x1b\[[0-9;]*(?:\*[yz|]|\#y|\$[wu|}~]|\+p|"p|'[z{|]|,[|}~]| [rtu]|[qy\][])`,
	`\x1b\[\?(?:[0-9]*;)*0*(?:3|18|19|38|40|46|1001|1042|1043|5522)(?:;[0-9]*)*[hr]`,
	`\x1b\[\?(?:[0-9]*;)*0*[23](?:;[0-9]*)*[lr]`,
	`\x1b\[(?:[0-9]*;)*0*2(?:;[0-9]*)*h`,
	`\x1b\[(?:[0-9]*;)*0*12(?:;[0-9]*)*l`,
	`\x1b\[.*[1-9][0-9]{5}`,
	`\x1b\[\??(?:[0-47-9]|1[0-9]|2[0-9]|63|99[0-57-9])(?:;[0-9]*)*n`,
	`\x1b\[\?[0-9]+;0*[0235-9][0-9;]*S`,
	`\x1b\[.*(?:6553[6-9]|655[4-9][0-9]|65[6-9][0-9]{2}|6[6-9][0-9]{3}|[7-9][0-9]{4})`, `\x1b\[[0-9;]*:[0-9;:]*[ -/]*[@-ln-~]`, `\x1b\[[?].*:`,
	`\x1b%`, `\x1b [A-Z]`, `\x1b[<PX^_\\]`,
	`\x1b\][^\x1b\x07;]*[^0-9;\x1b\x07]`,
	`\x1b\](?:0[0-9]|[;\x07\x1b])`,
	`\x1b\][012];\?[\x07\x1b]`,
	`\x1b\]1[0-9];[^\x07\x1b]*[^0-9A-Za-z#:/., ;?\x07\x1b-]`, `\x1b\]4;[^;]*[\x07\x1b]`,
	`\x1b\](?:3|6|7|21|22|50|51|60|61|66|133|633|1337|5113|5522)(?:;|\x07|\x1b)`,
	`\x1b\]52;[^;]*;[^\x1b\x07]*\?`,
	`\x1b\]52;(?:[^;]*[^cpqs0-7;]|[^;]*;[^\x07\x1b]*[^A-Za-z0-9+/=\x07\x1b])`, `\x1b\]52;[^;]*[\x07\x1b]`,
	`\x1b\]8(?:[\x07\x1b]|;.* |;.*https?:[^/])`, `\x1b\]99;[^;]* `,
	`\x1b\]8;[^;]*;(?:[^hmHM\x1b\x07]|[hm][^ta])`,
	`\x1b\]9;(?:[0-35-9]|[0-9]{2,5})(?:;|\x07|\x1b)`,
	`\x1b\](?:9|99|777);[^\x1b\x07]{600}`,
	`\x1b\][012];[^\x1b\x07]{257}`,
	`\x1b\]777;(?:[^n]|n[^o])`,
	`\x1b\]99;[^;]*(?:a=report|c=|p=\?|p=b[^o]|e=1|g=|n=)`,
}, "|") + `)`)

// read takes the output of a filter apart, and says what is wrong with it.
func read(out string) string {
	if !utf8.ValidString(out) {
		return "it is no UTF-8"
	}
	for rest := out; rest != ""; {
		m := token.FindString(rest)
		if m == "" {
			return "no sequence: " + strconv.Quote(rest[:min(len(rest), 40)])
		}
		if never.MatchString(m) || len(m) > 65600 {
			return "it has " + strconv.Quote(m)
		}
		rest = rest[len(m):]
	}
	return ""
}

// FuzzFilter: whatever is written, and however it is split, the same comes out; what
// comes out is read by the oracle without a fault, and so is what undoes it; what is
// kept is bounded; a second filter behind the first changes nothing.
func FuzzFilter(f *testing.F) {
	for _, file := range []string{"sequences.txt", "resets.txt"} {
		last := ""
		for _, v := range vectors(f, file) {
			f.Add(v.input, uint64(1))
			f.Add(last+v.input, uint64(7))
			last = v.input
		}
	}
	f.Fuzz(func(t *testing.T, in string, seed uint64) {
		out, reset, counts := written(t, in, 1<<20)
		if fault := read(out); fault != "" {
			t.Fatalf("%q: %q: %s", in, out, fault)
		}
		if fault := read(reset); fault != "" {
			t.Fatalf("%q: to undo it %q: %s", in, reset, fault)
		}
		var buf bytes.Buffer
		split := New(&buf, at)
		random := rand.New(rand.NewPCG(seed, 1))
		for rest := in; rest != ""; {
			n := 1 + random.IntN(min(len(rest), 9))
			split.Write([]byte(rest[:n]))
			rest = rest[n:]
			if len(split.part) > maxString || len(split.out) > 16*utf8.UTFMax+maxString {
				t.Fatalf("%d and %d bytes are kept", len(split.part), len(split.out))
			}
		}
		got := buf.String()
		if c, _ := split.Close(); got != out || c != counts || buf.String()[len(got):] != reset {
			t.Fatalf("%q: split %q and %s, whole %q and %s", in, got, c, out, counts)
		}
		if again, _, c := written(t, out, 1<<20); again != out || c.String() != "" {
			t.Fatalf("%q: filtered twice %q (%s), once %q", in, again, c, out)
		}
	})
}

// TestOracle: the oracle finds what must not pass, and finds no fault with what may.
func TestOracle(t *testing.T) {
	wrong := 0
	for _, v := range vectors(t, "sequences.txt") {
		if out, _ := v.expect(t); read(out) != "" {
			t.Errorf("%s: %s: %s", v.where, v.what, read(out))
		}
		if strings.HasPrefix(v.result, "drop ") {
			if read(v.input) == "" {
				t.Errorf("%s: %s: the oracle has nothing against %q", v.where, v.what, v.input)
			}
			wrong++
		}
	}
	if wrong < 60 {
		t.Errorf("%d vectors are left out whole", wrong)
	}
}

func BenchmarkText(b *testing.B) {
	line := strings.Repeat("the quick brown fox jumps over the lazy dog 0123456789\r\n", 1<<10)
	benchmark(b, []byte(line)[:maxChunk/2])
}

func BenchmarkScreen(b *testing.B) {
	line := strings.Repeat("\x1b[38;5;208mquick\x1b[0m \x1b[5;10Hbrown ✳ fox", 1<<10)
	benchmark(b, []byte(line)[:maxChunk/2])
}

func benchmark(b *testing.B, text []byte) {
	f := New(discard{}, at)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		f.Write(text)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
