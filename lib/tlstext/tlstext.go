// Package tlstext reads the bytes of a TLS client that are written as text, as
// vectors have them. Only tests import it.
//
//	160301        bytes in hexadecimal
//	00*32         one or more of them, that many times
//	"a\x00b"      the bytes of a Go string
//	WORD{ … }     what the word makes of the bytes within
//
// The words, of which those without braces take nothing:
//
//	u8 u16 u24           a length of that many bits before it
//	first:N at:N:HEX     its first N bytes; with HEX written over it at N
//	rec rec:TYPE:VERSION a record, by itself of type 22 and version 0301
//	recs:N cut:N         records of at most N bytes; two records, cut at N
//	msg:TYPE hello       a handshake message; a ClientHello with these extensions
//	ext:N pad:N          an extension; the padding extension with N bytes
//	sni sni:NAME         the server_name extension with that one name
//	host:NAME            one entry of its list
package tlstext

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Bytes reads a text.
func Bytes(text string) ([]byte, error) {
	out, rest, err := read(text, 0)
	if err == nil && rest != "" {
		err = fmt.Errorf("a } too many before %q", rest)
	}
	return out, err
}

// read reads up to the end, or to the } that closes what it is within.
func read(text string, depth int) (out []byte, rest string, err error) {
	for {
		text = strings.TrimLeft(text, " ")
		if text == "" || text[0] == '}' {
			if (text == "") != (depth == 0) {
				return nil, text, fmt.Errorf("a } is missing, or one too many, at %q", text)
			}
			return out, strings.TrimPrefix(text, "}"), nil
		}
		var b []byte
		if b, text, err = item(text, depth); err != nil {
			return nil, text, err
		}
		out = append(out, b...)
	}
}

func item(text string, depth int) (b []byte, rest string, err error) {
	if text[0] == '"' {
		q, err := strconv.QuotedPrefix(text)
		if err != nil {
			return nil, text, fmt.Errorf("%q: %w", text, err)
		}
		s, err := strconv.Unquote(q)
		return []byte(s), text[len(q):], err
	}
	word := text
	if i := strings.IndexAny(text, " {}"); i >= 0 {
		word = text[:i]
	}
	rest = text[len(word):]
	var inner []byte
	if strings.HasPrefix(rest, "{") {
		if inner, rest, err = read(rest[1:], depth+1); err != nil {
			return nil, rest, err
		}
		if inner == nil {
			inner = []byte{}
		}
	}
	name, args, _ := strings.Cut(word, ":")
	if word == "" {
		return nil, rest, fmt.Errorf("braces without a word before %q", rest)
	}
	if b, err = made(name, args, inner); err != nil {
		return nil, rest, fmt.Errorf("%q: %w", word, err)
	}
	return b, rest, nil
}

// made is what a word makes; inner is nil where it has no braces.
func made(name, args string, inner []byte) ([]byte, error) {
	n, _ := strconv.Atoi(args)
	switch name {
	case "u8":
		return length(1, inner), nil
	case "u16":
		return length(2, inner), nil
	case "u24":
		return length(3, inner), nil
	case "first":
		return inner[:min(n, len(inner))], nil
	case "at":
		return over(args, inner)
	case "rec":
		return record(args, inner)
	case "recs":
		return split(inner, n), nil
	case "cut":
		n = min(n, len(inner))
		return append(split(inner[:n], 16384), split(inner[n:], 16384)...), nil
	case "msg":
		return append([]byte{byte(n)}, length(3, inner)...), nil
	case "hello":
		return clientHello(inner), nil
	case "ext":
		return extension(n, inner), nil
	case "pad":
		return extension(21, make([]byte, n)), nil // RFC 7685
	case "sni":
		return extension(0, length(2, entry(either(inner, args)))), nil
	case "host":
		return entry([]byte(args)), nil
	}
	return hexes(name)
}

func either(inner []byte, args string) []byte {
	if inner != nil {
		return inner
	}
	return []byte(args)
}

// hexes reads bytes, and how many times they stand there.
func hexes(word string) ([]byte, error) {
	digits, times, many := strings.Cut(word, "*")
	b, err := hex.DecodeString(digits)
	if err != nil || !many {
		return b, err
	}
	n, err := strconv.Atoi(times)
	if err != nil || n < 0 || n > 1<<17 {
		return nil, fmt.Errorf("not a number of times: %q", times)
	}
	return bytes.Repeat(b, n), nil
}

func length(size int, b []byte) []byte {
	all := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	return append(all[4-size:], b...)
}

func over(args string, inner []byte) ([]byte, error) {
	at, digits, _ := strings.Cut(args, ":")
	n, err := strconv.Atoi(at)
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return nil, err
	}
	if n < 0 || n+len(b) > len(inner) {
		return nil, fmt.Errorf("at %d of %d bytes", n, len(inner))
	}
	out := bytes.Clone(inner)
	copy(out[n:], b)
	return out, nil
}

func record(args string, inner []byte) ([]byte, error) {
	if args == "" {
		args = "16:0301"
	}
	head, err := hex.DecodeString(strings.ReplaceAll(args, ":", ""))
	if err != nil || len(head) != 3 {
		return nil, fmt.Errorf("not a type and a version: %q", args)
	}
	return append(head, length(2, inner)...), nil
}

func split(b []byte, n int) (out []byte) {
	for n = max(n, 1); len(b) > 0; b = b[min(n, len(b)):] {
		r, _ := record("", b[:min(n, len(b))])
		out = append(out, r...)
	}
	return out
}

// clientHello is RFC 8446, section 4.1.2.
func clientHello(extensions []byte) []byte {
	b := append([]byte{3, 3}, make([]byte, 32)...)
	b = append(b, length(1, make([]byte, 32))...)
	b = append(b, 0, 4, 0x13, 1, 0x13, 2, 1, 0)
	b = append(b, length(2, extensions)...)
	return append([]byte{1}, length(3, b)...)
}

func extension(typ int, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(typ)), length(2, data)...)
}

// entry is one of the list of RFC 6066, section 3.
func entry(name []byte) []byte { return append([]byte{0}, length(2, name)...) }
