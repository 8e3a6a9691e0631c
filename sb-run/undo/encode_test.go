package undo

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sample is a record with everything that one can have.
func sample() *Record {
	id := Identity{1, 2, Time{-5, 999999999}}
	r := &Record{Header: Header{Version: formVersion, Name: "n", Tree: "/t", Of: "x", Started: time.Unix(1e9, 5).UTC(), Rules: Rules{[]string{"target"}, 7}},
		Entries: []Entry{
			{Kind: Dir, Mode: 0o1755, Mtime: Time{1, 2}, Identity: id},
			{Path: "a\xff\n", Kind: File, Mode: 0o4644, UID: 1, GID: 1 << 31, Size: 1 << 40, Digest: Digest{1, 31: 9}, Identity: id,
				Attributes: []Attribute{{"user.a", "\x00\xff"}, {"user.b", ""}}},
			{Path: "d", Kind: Dir, Identity: id, Attributes: []Attribute{{"user.d", "x"}}},
			{Path: "d/l", Kind: Link, Target: "\xfe \"quoted\"", Identity: id},
		},
		Skipped: []Skipped{{Path: "d/fifo", Why: "a fifo"}, {Path: "target", Why: "ignored by rule", Ignored: true}}}
	r.sort()
	return r
}

func encoded(t testing.TB, r *Record) []byte {
	var b bytes.Buffer
	if err := r.encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEncode(t *testing.T) {
	r := sample()
	text := encoded(t, r)
	got, err := decode(bytes.NewReader(text))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("%v\n%+v, want\n%+v\nfrom\n%s", err, got, r, text)
	}
	if h, err := decodeHeader(bytes.NewReader(text)); err != nil || !reflect.DeepEqual(h, r.Header) {
		t.Errorf("header: %+v, %v", h, err)
	}
	for n := range len(text) {
		if _, err := decode(bytes.NewReader(text[:n])); err == nil {
			t.Fatalf("cut to %d of %d bytes it is accepted", n, len(text))
		}
	}
}

// signed is a record of those lines, with the digest that they have.
func signed(lines ...string) string {
	text := form + "\n" + `{"version":1,"record":"n","tree":"/t"}` + "\n"
	for _, l := range lines {
		text += l + "\n"
	}
	return text + fmt.Sprintf("end %x\n", sha256.Sum256([]byte(text)))
}

// TestBadRecords: what no record has is refused, though its digest is right.
func TestBadRecords(t *testing.T) {
	const dir = `d 755 0 0 0 0 1 2 0 0 `
	const link = `l 777 0 0 0 0 1 2 0 0 `
	file := `f 644 0 0 0 0 1 2 0 0 5 ` + strings.Repeat("0", 64) + ` `
	good := []string{dir + `""`, file + `"a"`, `x "user.a" "v"`, dir + `"b"`, link + `"t" "b/l"`, `s "a fifo" "c"`}
	if _, err := decode(strings.NewReader(signed(good...))); err != nil {
		t.Fatalf("the control: %v", err)
	}
	for name, lines := range map[string][]string{
		"nothing":                  {},
		"no tree":                  {file + `"a"`},
		"a tree that is a file":    {file + `""`},
		"a way out":                {dir + `""`, file + `"../a"`},
		"a way out further on":     {dir + `""`, dir + `"b"`, file + `"b/../../a"`},
		"a path from the root":     {dir + `""`, file + `"/etc/a"`},
		"a dot":                    {dir + `""`, file + `"."`},
		"an empty name":            {dir + `""`, dir + `"b"`, file + `"b//a"`},
		"a zero byte":              {dir + `""`, file + `"a\x00"`},
		"in a link":                {dir + `""`, link + `"/etc" "b"`, file + `"b/passwd"`},
		"in a file":                {dir + `""`, file + `"b"`, file + `"b/a"`},
		"in nothing":               {dir + `""`, file + `"b/a"`},
		"twice":                    {dir + `""`, file + `"a"`, file + `"a"`},
		"out of order":             {dir + `""`, file + `"b"`, file + `"a"`},
		"a long path":              {dir + `""`, file + `"` + strings.Repeat("a", maxPath+1) + `"`},
		"a link to nothing":        {dir + `""`, link + `"" "l"`},
		"permissions":              {dir + `""`, `f 10000` + file[5:] + `"a"`},
		"a negative size":          {dir + `""`, strings.Replace(file, " 5 ", " -5 ", 1) + `"a"`},
		"a short digest":           {dir + `""`, strings.Replace(file, "00000", "", 1) + `"a"`},
		"a digest of other bytes":  {dir + `""`, strings.Replace(file, "00000", "0000g", 1) + `"a"`},
		"no path":                  {dir + `""`, file},
		"a path without quotes":    {dir + `""`, file + `a`},
		"a path in others":         {dir + `""`, file + "`a`"},
		"more behind the path":     {dir + `""`, file + `"a" b`},
		"another kind":             {dir + `""`, `p` + file[1:] + `"a"`},
		"an attribute of a link":   {dir + `""`, link + `"t" "l"`, `x "user.a" "v"`},
		"an attribute of nothing":  {`x "user.a" "v"`},
		"an attribute of another":  {dir + `""`, `x "security.capability" "v"`},
		"attributes out of order":  {dir + `""`, `x "user.b" "v"`, `x "user.a" "v"`},
		"skipped on the way out":   {dir + `""`, `s "a fifo" "../c"`},
		"an empty line":            {dir + `""`, ``},
		"nanoseconds of a minute":  {strings.Replace(dir, "0 0 0 0 1", "0 0 0 1000000000 1", 1) + `""`},
		"what is skipped in twice": {dir + `""`, `s "a fifo" "c"`, `s "a fifo" "c"`},
	} {
		if name == "nothing" { // no entry, but a record
			continue
		}
		if r, err := decode(strings.NewReader(signed(lines...))); err == nil {
			t.Errorf("%s: accepted as %+v", name, r.Entries)
		}
	}
	for name, text := range map[string]string{
		"empty":           "",
		"another form":    strings.Replace(signed(good...), "record 1", "record 2", 1),
		"another version": strings.Replace(signed(good...), `"version":1`, `"version":2`, 1),
		"an unknown key":  strings.Replace(signed(good...), `"version":1`, `"version":1,"x":1`, 1),
		"more":            signed(good...) + "x",
		"another digest":  strings.Replace(signed(good...), `"a"`, `"A"`, 1),
		"a long line":     form + "\n" + strings.Repeat("x", maxLine+1) + "\n",
	} {
		if _, err := decode(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzDecode: whatever is accepted is written as the same record again, names only
// paths beneath the tree, each in a directory of the record, and is not larger in
// memory than its text lets it be.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, sample())[len(form)+1:])
	f.Add([]byte(signed()[len(form)+1:]))
	f.Fuzz(func(t *testing.T, rest []byte) {
		// The digest is made right, or nothing would get past it.
		text := append([]byte(form+"\n"), rest...)
		if i := bytes.LastIndex(text, []byte("\nend ")); i >= 0 {
			text = fmt.Appendf(text[:i+1], "end %x\n", sha256.Sum256(text[:i+1]))
		}
		r, err := decode(bytes.NewReader(text))
		if err != nil {
			return
		}
		dirs := map[string]bool{}
		for i, e := range r.Entries {
			if checkPath(e.Path) != nil || (e.Path != "" || i > 0) && !dirs[parent(e.Path)] {
				t.Fatalf("%q", e.Path)
			}
			dirs[e.Path] = e.Kind == Dir
		}
		if n := bytes.Count(text, []byte{'\n'}); len(r.Entries)+len(r.Skipped) > n {
			t.Fatalf("%d entries of %d lines", len(r.Entries), n)
		}
		again, err := decode(bytes.NewReader(encoded(t, r)))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v\n%+v\n%+v", err, again, r)
		}
	})
}
