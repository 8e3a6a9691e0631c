package audit

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"sb/lib/reason"
)

var when = time.Date(2026, 8, 26, 6, 21, 28, 110e6, time.UTC)

func TestAppend(t *testing.T) {
	stamp := "2026-08-26T06:21:28.110Z "
	for _, c := range []struct {
		line Line
		want string
	}{
		{Line{Verdict: Allow, Gate: TCP, Name: "example.com", Address: "104.20.23.154:80", Reason: reason.AllowRule, Rule: "example.com"},
			"allow tcp example.com 104.20.23.154:80 allow-rule example.com"},
		{Line{Verdict: Close, Gate: TCP, Name: "example.com", Reason: reason.Done, Words: []Word{Int("up", 78), {"by", "guest"}}},
			"close tcp example.com - done - up=78 by=guest"},
		{Line{}, "- - - - - -"},
		{Line{Name: "-"}, `- - \x2d - - -`},
		{Line{Name: "a b"}, `- - a\x20b - - -`},
		{Line{Name: "a\nallow tcp"}, `- - a\x0aallow\x20tcp - - -`},
		{Line{Name: "\x1b]52;c;AA\a"}, `- - \x1b]52\x3bc\x3b\x41\x41\x07 - - -`},
		{Line{Name: `a\x00`}, `- - a\x5cx00 - - -`},
		{Line{Name: "k\u212a\xff"}, `- - k\xe2\x84\xaa\xff - - -`},
		{Line{Address: "[fd00::1]:22", Rule: "[2001:db8::/32]:22/raw"}, "- - - [fd00::1]:22 - [2001:db8::/32]:22/raw"},
		{Line{Words: []Word{{"a", "b=c d"}, {"e", ""}}}, `- - - - - - a=b\x3dc\x20d e=-`},
	} {
		c.line.Time = when
		if got := string(c.line.Append([]byte("before:"))); got != "before:"+stamp+c.want+"\n" {
			t.Errorf("%+v:\n got %q\nwant %q", c.line, got, stamp+c.want)
		}
	}
	local := Line{Time: when.In(time.FixedZone("", 2*3600))}
	if got := local.String(); !strings.HasPrefix(got, stamp) {
		t.Errorf("a time of another zone: %q", got)
	}
}

// However long what a guest sends is, the line has its fields and its bound.
func TestLongFields(t *testing.T) {
	long := strings.Repeat("\xff", 5000)
	l := Line{Time: when, Verdict: Verdict(long), Gate: Gate(long), Name: long, Address: long, Reason: reason.Code(long), Rule: long,
		Words: []Word{{"a", "1"}, {"b", long}, {"c", "2"}}}
	text := l.Append(nil)
	got, err := Parse(text)
	if err != nil || len(text) > MaxLine {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if want := []Word{{"a", "1"}}; !reflect.DeepEqual(got.Words, want) {
		t.Errorf("words %q, want %q", got.Words, want)
	}
	if got.Name != strings.Repeat("\xff", 255) {
		t.Errorf("%d bytes of the name were kept, want 255: the longest there is", len(got.Name))
	}
}

// A field by itself is written as in a line, and read in that spelling alone.
func TestField(t *testing.T) {
	for s, want := range map[string]string{
		"": "-", "-": `\x2d`, "a.example": "a.example", "evil\n.example": `evil\x0a.example`, "two words=1": `two\x20words\x3d1`, `\x41`: `\x5cx41`,
		strings.Repeat("\xff", 2000): strings.Repeat(`\xff`, 2000), strings.Repeat("a", 2000): strings.Repeat("a", 2000),
	} {
		if got := Field(s); got != want {
			t.Errorf("%.40q is written %.40q, want %.40q", s, got, want)
		}
		if got, err := ParseField(want); got != s || err != nil {
			t.Errorf("%.40q is read as %.40q, %v", want, got, err)
		}
	}
	for _, bad := range []string{"", "a b", "a\n", "A", `\x61`, `\xE9`, `\x0`, "\x1b", "a="} {
		if s, err := ParseField(bad); err == nil {
			t.Errorf("%q is read as %q", bad, s)
		}
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("a", 5000)
	if l := (Line{Name: long, Address: long, Rule: long}).Cut(); len(l.Name) != MaxName || len(l.Address) != 64 || len(l.Rule) != 384 {
		t.Errorf("%d, %d and %d bytes", len(l.Name), len(l.Address), len(l.Rule))
	}
	short := Line{Name: long[:MaxName], Address: "192.0.2.1:443", Rule: "*.example"}
	if got := short.Cut(); !reflect.DeepEqual(got, short) {
		t.Errorf("%+v", got)
	}
}

func TestGoldenLines(t *testing.T) {
	data, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range bytes.SplitAfter(data, []byte("\n")) {
		if len(text) == 0 {
			continue
		}
		l, err := Parse(text)
		if err != nil {
			t.Errorf("line %d: %v", i+1, err)
			continue
		}
		if got := l.Append(nil); !bytes.Equal(got, text) {
			t.Errorf("line %d:\n got %q\nwant %q", i+1, got, text)
		}
	}
}

func TestParse(t *testing.T) {
	good := "2026-08-26T06:21:28.110Z deny dns a.example - no-allow-rule - n=41 by=guest"
	l, err := Parse([]byte(good))
	want := Line{Time: when, Verdict: Deny, Gate: DNS, Name: "a.example", Reason: reason.NoAllowRule, Words: []Word{{"n", "41"}, {"by", "guest"}}}
	if err != nil || !reflect.DeepEqual(l, want) {
		t.Fatalf("%+v, %v, want %+v", l, err, want)
	}
	if l.Count() != 41 || l.Word("by") != "guest" || l.Word("up") != "" {
		t.Errorf("Count %d, by %q, up %q", l.Count(), l.Word("by"), l.Word("up"))
	}
	for _, n := range []string{"", "0", "-3", "x", "99999999999999999999"} {
		if got := (Line{Words: []Word{{"n", n}}}).Count(); got != 1 {
			t.Errorf("Count of n=%q is %d, want 1", n, got)
		}
	}
	for _, bad := range []string{
		"", "\n", "x",
		strings.Replace(good, " - no", " no", 1) + "x",
		"2026-08-26T06:21:28.110Z deny dns a.example - no-allow-rule",
		strings.Replace(good, " dns", "  dns", 1),
		" " + good, good + " ", good + " x", good + " =x", good + " -=x",
		good + "\n\n", good + "\r\n", good + "\nmore",
		strings.Replace(good, "110Z", "11Z", 1),
		strings.Replace(good, "28.110", "28,110", 1),
		strings.Replace(good, "Z", "+00:00", 1),
		strings.Replace(good, "08-26", "13-26", 1),
		strings.Replace(good, "a.example", "A.example", 1),
		strings.Replace(good, "a.example", "a\x1b.example", 1),
		strings.Replace(good, "a.example", "é.example", 1),
		strings.Replace(good, "a.example", `\x61.example`, 1),
		strings.Replace(good, "a.example", `\xE9.example`, 1),
		strings.Replace(good, "a.example", `\x0`, 1),
		strings.Replace(good, "a.example", `\x+1.example`, 1),
		strings.Replace(good, "a.example", `\n.example`, 1),
		good + " k=" + strings.Repeat("a", MaxLine),
	} {
		if l, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, l)
		}
	}
}

// Whatever a field holds, a line is one line of the alphabet, with its fields,
// and is read back.
func FuzzAppend(f *testing.F) {
	f.Add(int64(0), "deny", "a.example", "10.0.0.1:1", "*.example", "k", "v")
	f.Add(int64(1), "\n", "a\x00b", "-", "", "n", "=")
	f.Fuzz(func(t *testing.T, ms int64, verdict, name, address, rule, key, value string) {
		const years = 9000 * 365 * 24 * 3600 * 1000
		l := Line{Time: time.UnixMilli(ms % (years / 2)).UTC(), Verdict: Verdict(verdict), Gate: DNS, Name: name, Address: address,
			Reason: reason.BadName, Rule: rule, Words: []Word{{key, value}}}
		if l.Time.Year() < 0 {
			l.Time = time.Time{}
		}
		text := l.Append(nil)
		if bytes.IndexByte(text, '\n') != len(text)-1 || len(text) > MaxLine || len(bytes.Fields(text)) < 7 {
			t.Fatalf("%q", text)
		}
		for _, c := range text[:len(text)-1] {
			if !plain(c) && !strings.ContainsRune(` \=TZ`, rune(c)) {
				t.Fatalf("byte %#02x in %q", c, text)
			}
		}
		if key == "" {
			return
		}
		got, err := Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if again := got.Append(nil); !bytes.Equal(again, text) {
			t.Fatalf("%q is read and written as %q", text, again)
		}
		if short := len(verdict) <= 4 && len(name) <= 255 && len(address) <= 16 && len(rule) <= 96 && len(key)+len(value) <= 64; short && !reflect.DeepEqual(got, l) {
			t.Fatalf("%q is read as %+v, was %+v", text, got, l)
		}
	})
}

// What is read is what is written: there is no second spelling.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		if got := l.String(); got != strings.TrimSuffix(string(text), "\n") {
			t.Fatalf("%q is read and written as %q", text, got)
		}
	})
}
