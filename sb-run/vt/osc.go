package vt

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// commands are the OSC sequences that pass, by their number. Each gets what follows
// it, and returns what is passed of that, or as what it is left out.
var commands = map[string]func(*Filter, string) (string, kind){
	"0": (*Filter).oscTitle, "1": (*Filter).oscTitle, "2": (*Filter).oscTitle,
	"4": palette("104"), "5": palette("105"),
	"10": colour("110"), "11": colour("111"), "12": colour("112"), "13": colour("113"), "14": colour("114"),
	"15": colour("115"), "16": colour("116"), "17": colour("117"), "18": colour("118"), "19": colour("119"),
	"104": resetColours("104"), "105": resetColours("105"),
	"110": resetColours("110"), "111": resetColours("111"), "112": resetColours("112"), "113": resetColours("113"), "114": resetColours("114"),
	"115": resetColours("115"), "116": resetColours("116"), "117": resetColours("117"), "118": resetColours("118"), "119": resetColours("119"),
	"8":   (*Filter).oscLink,
	"9":   (*Filter).oscNote,
	"99":  (*Filter).oscKittyNote,
	"777": (*Filter).oscRxvt,
	"52":  (*Filter).oscClipboard,
}

// refused names some of the others.
var refused = map[string]kind{
	"3": settings, "6": window, "7": place, "22": window, "50": settings, "51": settings, "60": settings, "61": settings,
	"133": other, "633": other, "1337": place, "5113": place, "5522": clipRead,
}

// endOSC decides on an OSC that has come whole but for its end.
func (f *Filter) endOSC(end string) {
	defer f.end()
	s := string(f.part[2:])
	if f.long {
		k := long
		if strings.HasPrefix(s, "52;") {
			k = clipWrite
		}
		f.drop(k)
		return
	}
	if !printable(s) {
		f.drop(broken)
		return
	}
	number, arg, more := strings.Cut(s, ";")
	command, ok := commands[number]
	if !ok {
		k, ok := refused[number]
		if !ok {
			k = other
		}
		f.drop(k)
		return
	}
	arg, k := command(f, arg)
	if k != pass {
		f.drop(k)
		return
	}
	if more {
		number += ";"
	}
	f.pass("\x1b]", number, arg, end)
}

// printable reports whether s is UTF-8 without a control character.
func printable(s string) bool {
	for i, r := range s {
		if r < 0x20 || r >= del && r < 0xa0 || r == utf8.RuneError && s[i] != replacement[0] {
			return false
		}
	}
	return utf8.ValidString(s)
}

// shorten cuts s to so many characters.
func (f *Filter) shorten(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n > most {
			f.drop(cut)
			return s[:i]
		}
	}
	return s
}

// shortenBytes cuts s to so many bytes, between characters.
func (f *Filter) shortenBytes(s string, most int) string {
	if len(s) <= most {
		return s
	}
	f.drop(cut)
	for !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

func (f *Filter) oscTitle(s string) (string, kind) {
	if s == "?" { // some terminals answer with the title
		return "", title
	}
	return f.shorten(s, maxTitle), pass
}

// isColour is what the colours of X have for a form, and the question for one.
func isColour(s string) bool {
	if s == "?" {
		return true
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("#:/. ,-", c) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

func number(s string) bool { return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == "" }

// palette is pairs of a number and a colour. undo is the OSC that resets them.
func palette(undo string) func(*Filter, string) (string, kind) {
	return func(f *Filter, s string) (string, kind) {
		words := strings.Split(s, ";")
		if len(words)%2 != 0 || len(s) > maxColours {
			return "", broken
		}
		for i := 0; i < len(words); i += 2 {
			if !number(words[i]) || !isColour(words[i+1]) {
				return "", broken
			}
			if words[i+1] != "?" {
				f.modes.colours[undo] = true
			}
		}
		return s, pass
	}
}

// colour is one colour, or some that follow each other by number.
func colour(undo string) func(*Filter, string) (string, kind) {
	return func(f *Filter, s string) (string, kind) {
		words := strings.Split(s, ";")
		if len(words) > 10 {
			return "", broken
		}
		for i, w := range words {
			if !isColour(w) {
				return "", broken
			}
			if last := undo[2] + byte(i); w != "?" && last <= '9' {
				f.modes.colours[undo[:2]+string(last)] = true
			}
		}
		return s, pass
	}
}

// resetColours has colours as they were: those of the numbers given, or all.
func resetColours(name string) func(*Filter, string) (string, kind) {
	return func(f *Filter, s string) (string, kind) {
		if strings.Trim(s, "0123456789;") != "" || len(s) > maxColours {
			return "", broken
		}
		if s == "" {
			delete(f.modes.colours, name)
		}
		return s, pass
	}
}

// oscLink is a link: parameters, and a URL or nothing for its end.
func (f *Filter) oscLink(s string) (string, kind) {
	params, url, ok := strings.Cut(s, ";")
	if !ok || len(s) > maxLink || !ascii(s) {
		return "", broken
	}
	if url == "" {
		f.modes.link = false
		return ";", pass
	}
	scheme, rest, _ := strings.Cut(url, ":")
	switch strings.ToLower(scheme) {
	case "http", "https":
		if !strings.HasPrefix(rest, "//") {
			return "", place
		}
	case "mailto":
	default:
		return "", place
	}
	f.modes.link = true
	return params + ";" + url, pass
}

// ascii reports whether all of s is printable ASCII without blanks, as a URL is.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= del {
			return false
		}
	}
	return true
}

// oscNote is a notification, or one of ConEmu's commands, which have a number.
func (f *Filter) oscNote(s string) (string, kind) {
	first, rest, _ := strings.Cut(s, ";")
	if number(first) {
		if first == "4" && strings.Trim(rest, "0123456789;") == "" && len(rest) <= 8 {
			f.modes.progress = !strings.HasPrefix(rest, "0")
			return s, pass
		}
		return "", other
	}
	return f.notify(s)
}

// notify is a notification, if it is not too soon.
func (f *Filter) notify(s string) (string, kind) {
	if !f.caps.notes.take(f.now(), noteInterval) {
		return "", note
	}
	return f.shortenBytes(s, maxNote), pass
}

// oscRxvt is one of rxvt's extensions; its notifications are known by others too.
func (f *Filter) oscRxvt(s string) (string, kind) {
	text, ok := strings.CutPrefix(s, "notify;")
	if !ok {
		return "", other
	}
	text, k := f.notify(text)
	return "notify;" + text, k
}

// oscKittyNote is kitty's notification: what it has to be told of, and text. It may
// come in several, which d=0 says.
func (f *Filter) oscKittyNote(s string) (string, kind) {
	meta, text, ok := strings.Cut(s, ";")
	id, more := "", false
	for entry := range strings.SplitSeq(meta, ":") {
		key, value, _ := strings.Cut(entry, "=")
		switch {
		case entry == "":
		case key == "i" && len(value) <= 32 && word(value):
			id = value
		case key == "d" && (value == "0" || value == "1"):
			more = value == "0"
		case key == "p" && (value == "title" || value == "body"):
		case key == "e" && value == "0", key == "u" && number(value), key == "o" && word(value), key == "a" && (value == "focus" || value == "-focus"):
		default: // buttons, icons, questions, answers
			return "", note
		}
	}
	if !ok {
		return "", broken
	}
	if id != "" && id == f.caps.noteID && f.caps.chunks < maxNoteChunks {
		f.caps.chunks++
		text = f.shortenBytes(text, maxNote)
	} else {
		var k kind
		if text, k = f.notify(text); k != pass {
			return "", k
		}
		f.caps.chunks = 1
		f.caps.noteID = id
	}
	if !more && strings.Contains(meta, "d=1") {
		f.caps.noteID = ""
	}
	return meta + ";" + text, pass
}

// word reports whether s is of the characters that names have.
func word(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("_-+.", c) {
			return false
		}
	}
	return s != ""
}

// oscClipboard writes a clipboard, or asks for what is in it.
func (f *Filter) oscClipboard(s string) (string, kind) {
	which, data, ok := strings.Cut(s, ";")
	switch {
	case !ok || strings.Trim(which, "cpqs01234567") != "":
		return "", broken
	case strings.Contains(data, "?"):
		return "", clipRead
	case len(data) > maxClip:
		return "", clipWrite
	}
	if _, err := base64.StdEncoding.DecodeString(data); err != nil {
		return "", broken
	}
	if !f.caps.clip.take(f.now(), clipInterval) {
		return "", clipWrite
	}
	return s, pass
}
