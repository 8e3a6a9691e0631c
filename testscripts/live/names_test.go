package live

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

// TestResolvers: every kind of resolver in the guest takes a denied name for one
// that does not exist, at once, and finds an allowed one.
func TestResolvers(t *testing.T) {
	t.Parallel()
	// The second look-up of each is the one that is timed: the first also loads
	// the program, which is slow under emulation.
	r := run(t, box{flags: []string{"--allow", "allowed.example.org"}, script: `
both() { echo "== $1"; shift; for n in allowed denied; do "$@" $n.example.org >/dev/null 2>&1; "$@" $n.example.org 2>&1; done; }
ask_busybox() { s=$(date +%s%N); busybox nslookup $1 | grep -A1 '^Name:' | tail -1 || :; busybox nslookup $1 >/dev/null || echo "no such name"; e=$(date +%s%N); echo "ms=$(( (e-s)/2000000 ))"; }
both glibc lookup-glibc
both musl lookup-musl
both busybox ask_busybox
echo "== node"; node -e '
const dns = require("dns");
const ask = (n, next) => dns.lookup(n, () => { const s = performance.now(); dns.lookup(n, (e, a) => {
  console.log((e ? e.code : "found " + a) + " ms=" + Math.round(performance.now() - s)); next && next(); }); });
ask("allowed.example.org", () => ask("denied.example.org"));'
echo "== end"`})
	r.ok(t)
	for _, c := range []struct{ name, found, denied string }{
		{"glibc", "found", "no such name"},
		{"musl", "found", "no such name"},
		{"busybox", `Address.*198\.18\.1\.0`, "no such name"},
		{"node", `found 198\.18\.1\.0`, "ENOTFOUND"},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim(t, "51", "52")
			m := regexp.MustCompile(fmt.Sprintf(`(?s)^%s.*?ms=\d+\n.*?%s\s*ms=(\d+)`, c.found, c.denied)).FindStringSubmatch(r.section(c.name))
			if m == nil {
				t.Fatalf("%s says %q", c.name, r.section(c.name))
			}
			if ms, _ := strconv.Atoi(m[1]); ms > 100 {
				t.Errorf("a denied name took %d ms, at most 100", ms)
			}
		})
	}
}
