package vt

import "strings"

// escapes are the plain ESC sequences that pass, by their final byte.
const escapes = "6789" + // back and forward index, save and restore the cursor
	"=>" + // keypad
	"DEHMVW" + // index, next line, tab stop, reverse index, protected areas
	"NOno" + // shifts; not those of the right half, of which "}" begins a command of Terminology
	"Zc" // identify, reset

// sets are the intermediates that designate a character set. "%" is not among them.
const sets = "()*+-./"

// escape decides on a sequence of an ESC, intermediates and a final byte.
func (f *Filter) escape() {
	defer f.end()
	s := string(f.part[1:])
	final := s[len(s)-1]
	switch inter := s[:len(s)-1]; {
	case f.long:
		f.drop(broken)
	case inter == "" && strings.IndexByte(escapes, final) >= 0,
		inter == "#" && strings.IndexByte("34568", final) >= 0,
		inter != "" && len(inter) <= 2 && strings.IndexByte(sets, inter[0]) >= 0 && (len(inter) == 1 || strings.IndexByte(`"%&`, inter[1]) >= 0):
		f.pass("\x1b", s)
		f.modes.escape(inter, final)
	case s == `\`: // the end of nothing
	case s == "%G": // what is so already
	default:
		f.drop(reading)
	}
}

// string takes bytes of a string up to its end, and returns the rest.
func (f *Filter) string(b []byte) []byte {
	osc := f.part[1] == ']' || f.part[1] == 'k'
	most := maxName
	if osc {
		most = maxString
	}
	for i, c := range b {
		switch {
		case c == esc:
			f.state = inStringEscape
			return b[i+1:]
		case c == can || c == sub:
			f.drop(broken)
			f.end()
			return b[i+1:]
		case c == bel && f.part[1] == ']':
			f.endOSC("\a")
			return b[i+1:]
		}
		f.grow(c, most)
		if f.linuxPalette() {
			f.drop(other)
			f.end()
			return b[i+1:]
		}
	}
	return nil
}

// linuxPalette reports whether the string is one of those of the Linux console that
// have no end: "ESC ] R" and "ESC ] P" with seven digits.
func (f *Filter) linuxPalette() bool {
	return len(f.part) == 3 && f.part[1] == ']' && f.part[2] == 'R' ||
		len(f.part) == 10 && f.part[1] == ']' && f.part[2] == 'P'
}

// endString takes the byte behind an ESC in a string.
func (f *Filter) endString(c byte) bool {
	if c != '\\' { // the string is broken off by another sequence
		f.drop(broken)
		f.begin(inEscape, esc)
		return false
	}
	switch f.part[1] {
	case ']':
		f.endOSC("\x1b\\")
		return true
	case 'k':
		f.screenTitle()
	case 'P':
		f.drop(deviceControl(string(f.part[2:])))
	case '_':
		f.drop(image)
	default:
		f.drop(other)
	}
	f.end()
	return true
}

func (f *Filter) screenTitle() {
	s := string(f.part[2:])
	if f.long || !printable(s) {
		f.drop(broken)
		return
	}
	f.pass("\x1bk", f.shorten(s, maxTitle), "\x1b\\")
}

// deviceControl names a DCS by how it begins.
func deviceControl(s string) kind {
	rest := strings.TrimLeft(s, "0123456789;")
	switch {
	case strings.HasPrefix(rest, "$q"), strings.HasPrefix(rest, "+q"), strings.HasPrefix(rest, "$t"):
		return settings
	case strings.HasPrefix(rest, "q"), strings.HasPrefix(rest, "p"): // sixel, ReGIS
		return image
	case strings.HasPrefix(rest, "|"), strings.HasPrefix(rest, "+p"), strings.HasPrefix(rest, "!z"):
		return keys
	}
	return other
}
