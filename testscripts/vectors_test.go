package testscripts

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The vectors of lib/rule, put to the built sb-policy: what the library is held
// to, the command says too.

type vector struct {
	where string // file:line
	col   []string
}

func vectors(t *testing.T, file string) (all []vector) {
	text, err := os.ReadFile(filepath.Join("../lib/rule/testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if n++; line == "" || line[0] == '#' {
			continue
		}
		col := strings.SplitN(line, " | ", 3)
		if len(col) != 3 {
			t.Fatalf("%s:%d: %d columns", file, n, len(col))
		}
		if col[0] != "labels" && strings.HasPrefix(col[1], `"`) {
			if col[1], err = strconv.Unquote(col[1]); err != nil {
				t.Fatalf("%s:%d: %v", file, n, err)
			}
		}
		all = append(all, vector{file + ":" + strconv.Itoa(n), col})
	}
	if len(all) < 50 {
		t.Fatalf("%s has %d vectors", file, len(all))
	}
	return all
}

// policy runs sb-policy check.
func policy(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "sb-policy"), append([]string{"check"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// ruleArgs makes flags of the RULES column.
func ruleArgs(rules string) (args []string) {
	for _, w := range strings.Fields(rules) {
		switch w[0] {
		case '+':
			args = append(args, "--allow", w[1:])
		case '-':
			args = append(args, "--deny", w[1:])
		}
	}
	return args
}

func TestA32PolicyVectors(t *testing.T) {
	counted(t)
	asked := map[string][]vector{}
	for _, v := range vectors(t, "policy.txt") {
		if !strings.HasPrefix(v.col[1], "lookup ") { // sb-dns's question, which check has no word for
			asked[v.col[0]] = append(asked[v.col[0]], v)
		}
	}
	for rules, vs := range asked {
		stdin, want, code := "", "", 0
		for _, v := range vs {
			stdin += v.col[1] + "\n"
			verdict, rest, _ := strings.Cut(v.col[2], " ")
			want += verdict + " " + v.col[1] + " " + rest + "\n"
			if verdict == "deny" {
				code = 1
			}
		}
		stdout, stderr, got := policy(t, stdin, ruleArgs(rules)...)
		if stdout != want || got != code {
			t.Errorf("%s, %s: exit code %d, want %d\n got %s\nwant %s%s", vs[0].where, rules, got, code, stdout, want, stderr)
		}
	}
}

func TestHostVectors(t *testing.T) {
	counted(t)
	for _, v := range vectors(t, "hosts.txt") {
		switch kind, text := v.col[0], v.col[1]; kind {
		case "accept", "reject":
			stdout, stderr, code := policy(t, "", "--allow", text, "other.invalid")
			if kind == "accept" && (code != 1 || stdout != "deny other.invalid - no-allow-rule\n") {
				t.Errorf("%s: %q: exit code %d, %s%s", v.where, text, code, stdout, stderr)
			}
			if kind == "reject" && (code != 2 || stdout != "" || !strings.Contains(stderr, v.col[2])) {
				t.Errorf("%s: %q: exit code %d, %s%s", v.where, text, code, stdout, stderr)
			}
		default:
			want := map[string]int{"yes": 0, "no": 1}[kind]
			stdout, stderr, code := policy(t, "", append(ruleArgs(text), v.col[2])...)
			if code != want || strings.Count(stdout, "\n") != 1 {
				t.Errorf("%s: %s: %s: exit code %d, want %d\n%s%s", v.where, text, v.col[2], code, want, stdout, stderr)
			}
		}
	}
}

func TestRuleVectors(t *testing.T) {
	counted(t)
	file := filepath.Join(t.TempDir(), "rules")
	for _, v := range vectors(t, "rules.txt") {
		args := []string{"--" + v.col[0], v.col[1], "other.invalid"}
		if strings.ContainsAny(v.col[1], "\x00") { // no argument can hold it
			if err := os.WriteFile(file, []byte(v.col[0]+" "+v.col[1]+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			args = []string{"-f", file, "other.invalid"}
		}
		stdout, stderr, code := policy(t, "", args...)
		if want, ok := strings.CutPrefix(v.col[2], "! "); ok {
			said := strings.ReplaceAll(stderr, "\nsb-policy: hint: ", " (") // as the vectors have a hint
			if code != 2 || stdout != "" || !strings.Contains(said, strings.TrimSuffix(want, ")")) {
				t.Errorf("%s: %q: exit code %d, want the error %s\n%s%s", v.where, v.col[1], code, want, stdout, stderr)
			}
			continue
		}
		_, warning, warns := strings.Cut(v.col[2], " ~ ")
		if code != 1 || strings.Contains(stderr, "warning") != warns || warns && !strings.Contains(stderr, warning) {
			t.Errorf("%s: %q: exit code %d, want the warning %q\n%s%s", v.where, v.col[1], code, warning, stdout, stderr)
		}
	}
}

// What may not be a name is no host to ask about either.
func TestNameVectors(t *testing.T) {
	counted(t)
	n := 0
	for _, v := range vectors(t, "names.txt") {
		if v.col[0] != "text" || !strings.HasPrefix(v.col[2], "! ") || strings.ContainsAny(v.col[1], ":/@\n\x00") ||
			v.col[1] == "" || strings.HasSuffix(v.col[1], ".") || v.col[1] == "127.0.0.1" {
			continue // check has another meaning for these: a port, an address, one final dot
		}
		n++
		stdout, stderr, code := policy(t, "", "--allow", "*.example", "--", v.col[1], "a.example")
		if want := strings.TrimPrefix(v.col[2], "! "); code != 2 || stdout != "allow a.example *.example tls,http,ping\n" || !strings.Contains(stderr, want) {
			t.Errorf("%s: %q: exit code %d, want the error %s\n%s%s", v.where, v.col[1], code, want, stdout, stderr)
		}
	}
	if n < 20 {
		t.Errorf("%d names were asked about", n)
	}
}

// Ten thousand hosts pass through in order, one line each.
func TestCheckKeepsOrder(t *testing.T) {
	counted(t)
	var stdin strings.Builder
	for i := range 10_000 {
		stdin.WriteString("h" + strconv.Itoa(i) + ".example\n")
	}
	stdout, _, code := policy(t, stdin.String(), "--allow", "*.example", "--deny", "h7.example")
	s, i := bufio.NewScanner(strings.NewReader(stdout)), 0
	for ; s.Scan(); i++ {
		want := "allow h" + strconv.Itoa(i) + ".example *.example tls,http,ping"
		if i == 7 {
			want = "deny h7.example h7.example deny-rule"
		}
		if s.Text() != want {
			t.Fatalf("line %d is %q, want %q", i+1, s.Text(), want)
		}
	}
	if i != 10_000 || code != 1 {
		t.Errorf("%d lines, exit code %d", i, code)
	}
}
