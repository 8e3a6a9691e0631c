package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
)

// formsOf are the ways in which a server may write a secret, each with the
// placeholder written in the same way.
func formsOf(secret, placeholder []byte) (forms []form) {
	for _, write := range writings {
		forms = append(forms, form{[]byte(write(string(secret))), []byte(write(string(placeholder)))})
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			find, put := string(within(enc, secret, before)), string(within(enc, placeholder, before))
			for _, write := range writingsOfBase64 {
				forms = append(forms, form{[]byte(write(find)), []byte(write(put))})
			}
			if enc == base64.RawStdEncoding && len(secret) <= maxWrapped {
				forms = append(forms, wrapped(find, put)...)
			}
		}
	}
	return forms
}

// maxWrapped is the size of the longest secret that is looked for in base64 of several
// lines, in bytes: there are 1,600 ways to cut it, each as long as it.
const maxWrapped = 256

// wrapped are the ways in which the lines of base64 end within a secret: after 60
// characters (GitHub's API, Ruby) or 76 (MIME, RFC 2045), by a line break as it is or
// as JSON writes it.
func wrapped(find, put string) (forms []form) {
	for _, end := range []string{"\n", "\r\n", `\n`, `\r\n`} {
		for _, width := range []int{60, 76} {
			for first := 1; first <= width && first < len(find); first++ {
				forms = append(forms, form{cut(find, first, width, end), cut(put, first, width, end)})
			}
		}
	}
	return forms
}

// cut is text in lines of which the first has so many characters.
func cut(text string, first, width int, end string) (lines []byte) {
	for size := first; len(text) > size; size = width {
		lines = append(append(lines, text[:size]...), end...)
		text = text[size:]
	}
	return append(lines, text...)
}

var writings = []func(string) string{
	func(s string) string { return s },
	func(s string) string { return jsonText(s, true) },
	func(s string) string { return jsonText(s, false) },
	func(s string) string { return strings.ReplaceAll(jsonText(s, false), "/", `\/`) },
	url.QueryEscape,
	func(s string) string { return lowerEscapes(url.QueryEscape(s)) },
	url.PathEscape,
	func(s string) string { return lowerEscapes(url.PathEscape(s)) },
	func(s string) string { return everyByte(s, "%%%02X") },
	func(s string) string { return everyByte(s, "%%%02x") },
	func(s string) string { return hex.EncodeToString([]byte(s)) },
	func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	html.EscapeString,
	htmlNames.Replace,
	htmlNumbers.Replace,
	func(s string) string { return everyByte(s, "&#%d;") },
	func(s string) string { return everyByte(s, "&#x%x;") },
	func(s string) string { return everyByte(s, "&#x%X;") },
	func(s string) string { return everyByte(s, "&#X%X;") },
	strings.ToLower,
	strings.ToUpper,
	func(s string) string { return everyByte(s, `\u%04x`) },
	utf16,
}

// Of HTML, what XML's writers and templates put for what has a meaning there; Go's is
// html.EscapeString.
var (
	htmlNames   = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;")
	htmlNumbers = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;", "/", "&#x2F;", "`", "&#x60;", "=", "&#x3D;")
)

// writingsOfBase64 are those in which its "+", "/" and "=" are something else.
var writingsOfBase64 = []func(string) string{
	func(s string) string { return s },
	func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
	url.QueryEscape,
	func(s string) string { return lowerEscapes(url.QueryEscape(s)) },
	url.PathEscape,
	func(s string) string { return lowerEscapes(url.PathEscape(s)) },
	func(s string) string { return strings.ReplaceAll(s, "+", "&#43;") },
	htmlNumbers.Replace,
	func(s string) string { return everyByte(s, "&#%d;") },
	func(s string) string { return everyByte(s, "&#x%x;") },
	func(s string) string { return everyByte(s, "&#x%X;") },
	func(s string) string { return strings.ReplaceAll(s, "+", `\u002b`) },
	utf16,
}

// utf16 is what both byte orders of UTF-16 write of ASCII.
func utf16(s string) string { return strings.TrimSuffix(everyByte(s, "%c\x00"), "\x00") }

// within is what is sure of b's base64 where so many bytes (modulo 3) come before
// it: the characters that are of b's bits alone.
func within(enc *base64.Encoding, b []byte, before int) []byte {
	text := []byte(enc.EncodeToString(append(make([]byte, before), b...)))
	from, to := (8*before+5)/6, 8*(before+len(b))/6
	if from > to {
		return nil
	}
	return text[from:to]
}

func jsonText(s string, escapeHTML bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(escapeHTML)
	if enc.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// lowerEscapes writes the digits of percent escapes in lower case.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

func everyByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}
