package http1

import "strings"

// lower lowers ASCII and nothing else: to package strings, U+212A (the Kelvin
// sign) is a "k" in capitals, and to servers it is three bytes that mean nothing.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// isASCII reports whether s holds no byte above ASCII.
func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0
}

// hasC1 reports whether s holds a control character of Latin-1. To a server that
// reads fields in it, 0x85 ends a line.
func hasC1(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 && s[i] <= 0x9f {
			return true
		}
	}
	return false
}
