package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// said is a request as a reader understood it.
type said struct{ method, host, body string }

// passBody passes a body as the gate does.
func passBody(req *Request, w io.Writer, r *bufio.Reader) error {
	return req.Body(w, r, copier(w, r))
}

// hostBytes are those of names and addresses; the gate refuses any other Host.
const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:[]"

// ours is what we read of a stream, and what of it we pass on. The last request
// may be one whose body broke: its head was passed, and is there.
func ours(stream []byte) (all []said, passed []byte) {
	var out bytes.Buffer
	r := bufio.NewReader(bytes.NewReader(stream))
	for {
		req, err := Read(r)
		if err != nil || strings.Trim(req.Host, hostBytes) != "" {
			return all, out.Bytes()
		}
		out.Write(req.Head)
		var body bytes.Buffer
		err = passBody(req, &body, r)
		out.Write(body.Bytes())
		content := body.String()
		if req.chunked {
			content = unchunk(content)
		}
		all = append(all, said{req.Method, strings.ToLower(req.Host), content})
		if err != nil {
			return all, out.Bytes()
		}
	}
}

// unchunk is the content of a chunked body that we passed.
func unchunk(body string) (content string) {
	for {
		size, rest, ok := strings.Cut(body, "\r\n")
		n, err := strconv.ParseUint(size, 16, 63)
		if !ok || err != nil || n == 0 {
			return content
		}
		n = min(n, uint64(len(rest))) // the last may be cut
		content += rest[:n]
		body = strings.TrimPrefix(rest[n:], "\r\n")
	}
}

// theirs is what net/http reads of what we passed.
func theirs(passed []byte) (all []said) {
	r := bufio.NewReader(bytes.NewReader(passed))
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return all
		}
		body, err := io.ReadAll(req.Body)
		all = append(all, said{req.Method, strings.ToLower(req.Host), string(body)})
		if err != nil {
			return all
		}
	}
}

// agree holds a reader to us: of what we pass on it reads no other request than
// ours, in our order, each with our host and body. It may refuse earlier.
func agree(t *testing.T, who string, got, want []said, stream []byte) {
	t.Helper()
	if len(got) > len(want) {
		t.Fatalf("%s reads %d requests, we %d:\n%q\n%q\nin %q", who, len(got), len(want), got, want, stream)
	}
	for i, g := range got {
		last := i == len(want)-1 // may be cut
		if g.method != want[i].method || g.host != want[i].host || g.body != want[i].body && !(last && strings.HasPrefix(want[i].body, g.body)) {
			t.Fatalf("%s reads %q, we %q, in %q", who, g, want[i], stream)
		}
	}
}

// lax is a reader as there are many: it makes something of nearly everything.
type lax struct {
	name       string
	lf, cr     bool // line ends that it takes besides CRLF
	nel        bool // a field ends at NEL, a line end of Latin-1, too
	unicode    bool // letters of Unicode are one in either case
	fold       bool // a line that begins with a blank goes on with the one before
	trimmed    string
	underscore bool // "_" in a name is a "-"
	lastWins   bool // of two fields of a name it takes the last
	merge      bool // trailers are fields like others
	base       int  // of a length; 0: as in C
}

var laxReaders = []lax{
	{name: "plain", base: 10},
	{name: "line feeds", lf: true, base: 10, trimmed: " \t"},
	{name: "returns", lf: true, cr: true, base: 10, trimmed: " \t\r"},
	{name: "folding", lf: true, fold: true, base: 10, trimmed: " \t"},
	{name: "trimming", lf: true, base: 10, trimmed: " \t\v\f\x00\x85\xa0+\"", lastWins: true},
	{name: "underscores", base: 10, underscore: true, trimmed: " \t", lastWins: true},
	{name: "numbers as in C", trimmed: " \t"},
	{name: "Latin-1", base: 10, nel: true, trimmed: " \t\xa0", lastWins: true},
	{name: "Unicode", base: 10, unicode: true, trimmed: " \t", lastWins: true},
	{name: "merging trailers", base: 10, trimmed: " \t", merge: true, lastWins: true},
}

var errLax = errors.New("not even a lax reader takes this")

func (l lax) lower(s string) string {
	if l.unicode {
		return strings.ToLower(s)
	}
	return string(bytes.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, []byte(s)))
}

// line takes a line off b.
func (l lax) line(b *[]byte) (string, error) {
	for i, c := range *b {
		crlf := c == '\r' && i+1 < len(*b) && (*b)[i+1] == '\n'
		if crlf || c == '\n' && l.lf || c == '\r' && l.cr {
			line := string((*b)[:i])
			if *b = (*b)[i+1:]; crlf {
				*b = (*b)[1:]
			}
			return line, nil
		}
	}
	return "", errLax
}

// fields reads lines up to an empty one.
func (l lax) fields(b *[]byte, into map[string]string) error {
	last := ""
	var more []string // lines within one
	for {
		line, err := "", error(nil)
		if len(more) > 0 {
			line, more = more[0], more[1:]
		} else if line, err = l.line(b); err == nil && l.nel {
			more = strings.Split(line, "\x85")
			line, more = more[0], more[1:]
		}
		if err != nil || line == "" {
			return err
		}
		if l.fold && (line[0] == ' ' || line[0] == '\t') {
			into[last] += line
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		if name = l.lower(strings.Trim(name, l.trimmed)); l.underscore {
			name = strings.ReplaceAll(name, "_", "-")
		}
		if _, had := into[name]; !had || l.lastWins {
			into[name] = strings.Trim(value, l.trimmed+" \t")
		}
		last = name
	}
}

func (l lax) body(b *[]byte, f map[string]string) (string, error) {
	if !strings.Contains(l.lower(f["transfer-encoding"]), "chunked") {
		n, err := strconv.ParseUint(f["content-length"], l.base, 63)
		if err != nil {
			n = 0
		}
		all := *b
		n = min(n, uint64(len(all)))
		*b = all[n:]
		return string(all[:n]), nil
	}
	content := ""
	for {
		line, err := l.line(b)
		if err != nil {
			return content, err
		}
		line, _, _ = strings.Cut(line, ";")
		n, err := strconv.ParseUint(strings.Trim(line, l.trimmed), 16, 63)
		switch {
		case err != nil:
			return content, err
		case n == 0:
			trailers := map[string]string{}
			if l.merge {
				trailers = f
			}
			return content, l.fields(b, trailers)
		}
		n = min(n, uint64(len(*b)))
		content += string((*b)[:n])
		*b = (*b)[n:]
		if rest, ok := bytes.CutPrefix(*b, []byte("\r\n")); ok {
			*b = rest
		} else if rest, ok := bytes.CutPrefix(*b, []byte("\n")); ok && l.lf {
			*b = rest
		}
	}
}

func (l lax) read(b []byte) (all []said) {
	for {
		line, err := l.line(&b)
		if err != nil {
			return all
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			continue // an empty line between requests, or something to be skipped
		}
		f := map[string]string{}
		if l.fields(&b, f) != nil {
			return all
		}
		body, err := l.body(&b, f)
		all = append(all, said{words[0], strings.ToLower(f["host"]), body})
		if err != nil {
			return all
		}
	}
}

// readersAgree is the property: whoever reads what we pass on reads our requests.
func readersAgree(t *testing.T, stream []byte) (requests int) {
	t.Helper()
	want, passed := ours(stream)
	if !bytes.HasPrefix(stream, passed) {
		t.Fatalf("%q was passed as %q", stream, passed)
	}
	agree(t, "net/http", theirs(passed), want, stream)
	for _, l := range laxReaders {
		agree(t, l.name, l.read(bytes.Clone(passed)), want, stream)
	}
	return len(want)
}

func TestC3Readers(t *testing.T) {
	n := 0
	for _, v := range vectors(t) {
		n += readersAgree(t, []byte(v.stream))
		n += readersAgree(t, []byte(v.stream+get))
	}
	if n < 100 {
		t.Errorf("%d requests were passed on and compared", n)
	}
	// Each reader reads something, and each of them something else, where we pass
	// nothing: they could find a difference.
	for _, l := range laxReaders {
		if got := l.read([]byte(get + get)); len(got) != 2 || got[1].host != "a.example" {
			t.Errorf("%s reads %q", l.name, got)
		}
		differs := l.name == "plain"
		for _, v := range vectors(t) {
			want, _ := ours([]byte(v.stream))
			differs = differs || len(l.read([]byte(v.stream))) != len(want)
		}
		if !differs {
			t.Errorf("%s reads every vector as we do", l.name)
		}
	}
}

// FuzzAgainstReaders: whatever the bytes, net/http and a family of lax readers
// find in what we pass on our requests and no other: as many, with the same
// methods, for the same hosts, with the same bodies.
func FuzzAgainstReaders(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.stream))
	}
	f.Fuzz(func(t *testing.T, in []byte) { readersAgree(t, in) })
}

// FuzzSwitchedAgainstNetHTTP: every byte of an answer is passed on, and where it switches to
// another protocol, net/http reads a 101 too, if it reads anything.
func FuzzSwitchedAgainstNetHTTP(f *testing.F) {
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nraw"))
	f.Add([]byte("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 101\n\nraw"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 1010 X\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		r := bufio.NewReader(bytes.NewReader(in))
		switched, err := Switched(&out, r)
		heads := out.Len()
		io.Copy(&out, r)
		if err == nil && !bytes.Equal(out.Bytes(), in) || !bytes.HasPrefix(in, out.Bytes()) {
			t.Fatalf("%q was passed as %q", in, out.Bytes())
		}
		if !switched {
			return
		}
		answers := bufio.NewReader(bytes.NewReader(in[:heads]))
		for {
			res, err := http.ReadResponse(answers, nil)
			if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
				return
			}
			if res.StatusCode >= 200 {
				t.Fatalf("net/http reads %s in %q", res.Status, in)
			}
		}
	})
}

// streamed is what a Stream hands out of a stream that comes in pieces, as far as
// net/http is asked for it.
func streamed(stream []byte, piece int) []byte {
	var parts []io.Reader
	for b := stream; len(b) > 0; {
		n := min(len(b), piece)
		parts, b = append(parts, bytes.NewReader(b[:n])), b[n:]
	}
	s := NewStream(io.MultiReader(parts...), func(req *Request) error {
		if strings.Trim(req.Host, hostBytes) != "" {
			return refuse("host")
		}
		return nil
	})
	out, _ := io.ReadAll(s)
	return out
}

// FuzzStream: in whatever pieces a stream comes, what is handed out of it is the
// beginning of it, and net/http reads no other requests there than we do.
func FuzzStream(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.stream), uint16(0))
		f.Add([]byte(v.stream+get), uint16(99))
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		out := streamed(stream, int(piece)+1)
		if !bytes.HasPrefix(stream, out) {
			t.Fatalf("%q handed out as %q", stream, out)
		}
		if other := streamed(stream, len(stream)+1); !bytes.Equal(out, other) {
			t.Fatalf("%q in pieces of %d is %q, whole %q", stream, int(piece)+1, out, other)
		}
		all, passed := ours(stream)
		if !bytes.HasPrefix(passed, out) && !bytes.HasPrefix(out, passed) {
			t.Fatalf("%q: handed out %q, passed %q", stream, out, passed)
		}
		read := theirs(out)
		for i, r := range read {
			if i >= len(all) || r.method != all[i].method || r.host != all[i].host {
				t.Fatalf("%q: net/http reads %q as request %d of what was handed out, we read %q", stream, r, i, all)
			}
		}
	})
}
