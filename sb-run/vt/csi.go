package vt

import (
	"slices"
	"strconv"
	"strings"
)

// control is a CSI sequence, taken apart. A parameter that is left out is 0; of one
// with parts behind colons it is the first part.
type control struct {
	key    string // prefix, intermediates and final byte: what it is
	params []int  // at least one
	given  bool   // there are some
}

// maxParam bounds a parameter: what draws needs no more.
const maxParam = 65535

// parseCSI takes a sequence apart that begins with ESC [ and ends with a final byte.
// room is for its parameters.
func parseCSI(s []byte, room []int) (c control, ok bool) {
	body, final := s[2:len(s)-1], s[len(s)-1]
	start, end := 0, len(body)
	if end > 0 && body[0] >= '<' && body[0] <= '?' {
		start = 1
	}
	for end > start && body[end-1] < 0x30 {
		end--
	}
	if len(body)-end > 2 {
		return c, false
	}
	key := append(append(append(make([]byte, 0, 4), body[:start]...), body[end:]...), final)
	c = control{key: string(key), params: append(room[:0], 0), given: end > start}
	v, colons := 0, false
	for _, d := range body[start:end] {
		switch {
		case d >= '0' && d <= '9':
			if v = 10*v + int(d-'0'); v > maxParam {
				return c, false
			}
			if !colons {
				c.params[len(c.params)-1] = v
			}
		case d == ':' && c.key == "m":
			v, colons = 0, true
		case d == ';':
			c.params = append(c.params, 0)
			v, colons = 0, false
		default:
			return c, false
		}
	}
	return c, true
}

// denied are those CSI sequences that are left out whatever their parameters; doc.go
// has why.
var denied = map[string]kind{
	">t": title, ">T": title,
	"i": printing, "?i": printing,
	"*y": screen, "#y": screen,
	"$w": settings, "$u": settings, "+p": settings,
	`"p`: reading,
	"*z": keys,
	">f": keys, ">p": window, "*|": window, "$|": window, ",|": window, ",}": window,
	",~": bell, " r": bell, " t": bell, " u": bell,
	"'z": keys, "'{": keys, "'|": keys,
	"$}": other, "$~": other, "q": other, "y": other, "]": other, "[": other,
}

// allowed are the parameters of those that pass only with some: the first of them.
var allowed = map[string]struct {
	params []int
	kind   kind
}{
	"t":  {[]int{14, 15, 16, 18, 19, 22, 23}, window},
	"n":  {[]int{5, 6}, settings},
	"?n": {[]int{6, 996}, settings},
}

// badModes are the changes of modes that no guest makes; doc.go has why. What restores
// saved ones ("r") may do either.
var badModes = map[string]kind{
	"2h": keys, "12l": keys,
	"?2l": reading, "?3h": window, "?3l": window, "?18h": printing, "?19h": printing, "?38h": window, "?40h": window,
	"?46h": place, "?1001h": keys, "?1042h": window, "?1043h": window, "?5522h": clipRead,
}

// csi decides on a CSI sequence.
func (f *Filter) csi() {
	c, ok := parseCSI(f.part, f.params)
	f.params = c.params
	if !ok {
		f.drop(broken)
		return
	}
	if k, ok := denied[c.key]; ok {
		f.drop(k)
		return
	}
	if a, ok := allowed[c.key]; ok && !slices.Contains(a.params, c.params[0]) {
		if c.key == "t" && (c.params[0] == 20 || c.params[0] == 21) {
			a.kind = title
		}
		f.drop(a.kind)
		return
	}
	switch c.key {
	case "h", "l", "?h", "?l", "?r":
		f.setModes(c)
	case "?S":
		if len(c.params) < 2 || c.params[1] != 1 && c.params[1] != 4 {
			f.drop(settings)
			return
		}
		f.out = append(f.out, f.part...)
	default:
		if !f.modes.csi(c) {
			f.drop(other)
			return
		}
		f.out = append(f.out, f.part...)
	}
}

// setModes passes those modes of a list that may be changed so.
func (f *Filter) setModes(c control) {
	prefix, final := c.key[:len(c.key)-1], c.key[len(c.key)-1:]
	var good []string
	for _, m := range c.params {
		n := strconv.Itoa(m)
		k := badModes[prefix+n+final]
		if final == "r" {
			k = max(badModes[prefix+n+"h"], badModes[prefix+n+"l"])
		}
		if k == pass && !f.modes.set(c.key, m) {
			k = other
		}
		if k != pass {
			f.drop(k)
			continue
		}
		good = append(good, n)
	}
	if len(good) > 0 {
		f.pass("\x1b[", prefix, strings.Join(good, ";"), final)
	}
}
