package live

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestResolvers: every kind of resolver in the guest takes a denied name for one
// that does not exist, at once, and finds an allowed one.
func TestResolvers(t *testing.T) {
	t.Parallel()
	// The best of five is what counts: the first also loads the program, and a
	// process takes long to start on an emulated machine that is busy. A resolver
	// that waits does so every time. Of a program that cannot say how long it asked,
	// the time that it takes to start, asking nothing, is not counted.
	r := run(t, box{flags: []string{"--allow", "allowed.example.org"}, script: `
each() { echo "== $1"; shift; "$@" allowed.example.org; for i in 1 2 3 4 5; do "$@" denied.example.org; done; }
ask_busybox() { s=$(date +%s%N); a=$(busybox ${2:-nslookup} $1) && echo "found ${a##*Address}" || echo "no such name"; e=$(date +%s%N); echo "ms=$(( (e-s)/1000000 ))"; }
each glibc lookup-glibc 2>&1
each musl lookup-musl 2>&1
each busybox ask_busybox
echo "== start"; for i in 1 2 3 4 5; do ask_busybox nothing false; done
echo "== node"; node -e '
const dns = require("dns").promises;
const ask = async (n) => { const s = performance.now(), a = await dns.lookup(n).then((a) => "found " + a.address, (e) => e.code);
  console.log(a + " ms=" + Math.round(performance.now() - s)); };
(async () => { await ask("allowed.example.org"); for (let i = 0; i < 5; i++) await ask("denied.example.org"); })();'
echo "== end"`})
	r.ok(t)
	// best is the least time of five.
	best := func(t *testing.T, section, denied string) int {
		said := r.section(section)
		times := regexp.MustCompile(denied+`\s*ms=(\d+)`).FindAllStringSubmatch(said, -1)
		if len(times) != 5 {
			t.Fatalf("the denied name: %q", said)
		}
		best := math.MaxInt
		for _, m := range times {
			ms, _ := strconv.Atoi(m[1])
			best = min(best, ms)
		}
		return best
	}
	start := best(t, "start", "no such name")
	for _, c := range []struct {
		name, found, denied string
		start               int
	}{
		{"glibc", "found", "no such name", 0},
		{"musl", "found", "no such name", 0},
		{"busybox", `found \S*: 198\.18\.1\.0`, "no such name", start},
		{"node", `found 198\.18\.1\.0`, "ENOTFOUND", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim(t, "51", "52")
			said := r.section(c.name)
			if !regexp.MustCompile(`^` + c.found).MatchString(said) {
				t.Errorf("control: the allowed name is not found: %q", said)
			}
			if ms := best(t, c.name, c.denied) - c.start; ms > 100 {
				t.Errorf("a denied name took %d ms, at most 100", ms)
			}
		})
	}
}

// TestAnyName: whatever bytes a name has that the guest asks for, the end of the
// run says what was refused, on a line each, and the gate is there to tell it.
func TestAnyName(t *testing.T) {
	t.Parallel()
	r := run(t, box{flags: []string{"--allow", "allowed.example.org"}, script: `
probe dns plain.example
probe dns "$(printf 'evil\n.example')"
probe dns "$(printf 'x 1\303\227 (--allow evil.example)')"
echo "== end"`})
	r.ok(t)
	for _, want := range []string{
		"\nsb-run:   plain.example 1× no-allow-rule  (--allow plain.example)\n", // the control
		"\nsb-run:   evil\\x0a.example 1× ",
		"\nsb-run:   x\\x201\\xc3\\x97\\x20\\x28--allow\\x20evil.example\\x29 1× ",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("the end of the run has no %q:\n%s", want, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "is not known") {
		t.Errorf("what was refused is not known:\n%s", r.stderr)
	}
	r.logs(t, `note run \S+ - gate-end`)
	r.logsNot(t, "gate-died")
}
