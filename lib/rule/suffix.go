package rule

import (
	_ "embed"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// idn converts as a resolver's client should before a lookup (RFC 5891 §5),
// without the mappings of IDNA2003 that made two names one.
var idn = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.StrictDomainName(true),
	idna.ValidateLabels(true),
	idna.CheckHyphens(true),
	idna.CheckJoiners(true),
	idna.BidiRule(),
)

// toASCII converts a host name to its form on the wire.
func toASCII(host string) (string, *fault) {
	plain := true
	for i, r := range host {
		switch {
		case r < 0x80 && (r == '.' || nameByte(byte(r))):
		case r < 0x80:
			return "", charFault(i, "cannot stand in a host name").hintFor(r)
		case r == unicode.ReplacementChar:
			return "", charFault(i, "is no character: the text is not UTF-8")
		case unicode.In(r, unicode.L, unicode.M, unicode.N), r == '\u00b7', r == '\u200c', r == '\u200d':
			plain = false // the last three may join letters (RFC 5892 appendix A)
		default:
			return "", charFault(i, "cannot stand in a host name")
		}
	}
	if plain {
		return host, nil
	}
	ascii, err := idn.ToASCII(host)
	if err != nil {
		return "", faultf("the name cannot be converted: %v", err)
	}
	return ascii, nil
}

// hintFor says what a user who wrote r may have meant.
func (f *fault) hintFor(r rune) *fault {
	if strings.ContainsRune(", ;\t\n", r) {
		f.hint = "one rule holds one host; give each host a rule of its own"
	}
	return f
}

// privateUse are suffixes that nobody can register in the public DNS, so a
// wildcard on one of them covers the user's own network alone: RFC 6761, RFC
// 6762 and its appendix G, RFC 8375, and the names that ICANN set aside
// (internal) or will not delegate (corp, home, mail).
var privateUse = map[string]bool{
	"test": true, "example": true, "localhost": true, "local": true,
	"intranet": true, "internal": true, "private": true, "corp": true,
	"home": true, "lan": true, "mail": true, "home.arpa": true,
}

// The Public Suffix List without its top-level domains, which are told by having
// one label: behind a header a suffix a line, sorted, in the list's own words for
// wildcards and exceptions.
// golang.org/x/net/publicsuffix would link net/http into every tool; a test
// writes these files from it and holds them to it.
var (
	//go:embed suffixes/icann.txt
	icannSuffixes string
	//go:embed suffixes/private.txt
	privateSuffixes string
)

// listed says whether s, of two labels or more, is a suffix of that list.
func listed(list, s string) bool {
	_, list, _ = strings.Cut(list, "\n\n") // the header
	_, parent, _ := strings.Cut(s, ".")
	return !hasLine(list, "!"+s) && (hasLine(list, s) || hasLine(list, "*."+parent))
}

// hasLine searches sorted lines, each with its newline.
func hasLine(list, line string) bool {
	for len(list) > 0 {
		start := strings.LastIndexByte(list[:len(list)/2], '\n') + 1
		end := start + strings.IndexByte(list[start:], '\n')
		switch at := list[start:end]; {
		case line == at:
			return true
		case line < at:
			list = list[:start]
		default:
			list = list[end+1:]
		}
	}
	return false
}

// checkSuffix refuses a wildcard on a suffix under which the public registers
// names, and warns of one on a suffix whose owner lets anyone publish there.
func (r *Rule) checkSuffix() *fault {
	s := r.name.s
	switch {
	case privateUse[s]:
		return nil
	case !strings.Contains(s, "."):
		return faultf("%q is a whole top-level domain: anyone can register a name in it", s).write("the hosts, or *.NAME.%s", s)
	case listed(icannSuffixes, s):
		return faultf("%q is a public suffix: anyone can register a name under it", s).write("the hosts, or *.NAME.%s", s)
	case listed(privateSuffixes, s):
		r.warn("anyone can publish under " + s)
	}
	return nil
}
