package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// vector is a line of testdata/requests.txt.
type vector struct{ id, what, result, stream string }

func vectors(t testing.TB) (all []vector) {
	text, err := os.ReadFile("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		col := strings.SplitN(line, " | ", 4)
		if len(col) != 4 {
			t.Fatalf("%q has %d columns", line, len(col))
		}
		stream, err := strconv.Unquote(col[3])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, vector{col[0], col[1], col[2], stream})
	}
	return all
}

// result is what becomes of the requests of a stream, in the words of the
// vectors, and what of it is passed on.
func result(stream string) (string, []byte) {
	var said []string
	var passed bytes.Buffer
	r := bufio.NewReader(strings.NewReader(stream))
	for {
		req, err := Read(r)
		var no Refused
		switch {
		case errors.As(err, &no):
			said = append(said, "refuse "+string(no.Code))
		case err != nil && len(stream)-passed.Len() > 0:
			said = append(said, "refuse http-malformed") // cut
		}
		if err != nil {
			return strings.Join(said, ", "), passed.Bytes()
		}
		passed.Write(req.Head)
		if err := passBody(req, &passed, r); errors.As(err, &no) {
			return strings.Join(append(said, "break "+string(no.Code)), ", "), passed.Bytes()
		} else if err != nil {
			return strings.Join(append(said, "break"), ", "), passed.Bytes()
		}
		said = append(said, strings.TrimSpace(fmt.Sprintf("pass %s %s %s", req.Method, req.Host, req.Upgrade)))
	}
}

func TestVectors(t *testing.T) {
	all := vectors(t)
	if len(all) < 120 {
		t.Errorf("%d vectors, at least 120 are wanted", len(all))
	}
	seen := map[string]bool{}
	for _, v := range all {
		t.Run(v.id+"/"+v.what, func(t *testing.T) {
			if seen[v.stream] {
				t.Error("these bytes stand twice")
			}
			seen[v.stream] = true
			got, passed := result(v.stream)
			if got != v.result {
				t.Errorf("%s, want %s", got, v.result)
			}
			if !strings.HasPrefix(v.stream, string(passed)) || strings.HasPrefix(v.result, "refuse") && len(passed) > 0 {
				t.Errorf("passed %q", passed)
			}
			if strings.HasPrefix(v.result, "pass") && !strings.Contains(v.result, "refuse") && len(passed) != len(v.stream) {
				t.Errorf("%d bytes of %d were passed", len(passed), len(v.stream))
			}
		})
	}
}
