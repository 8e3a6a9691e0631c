package vt

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// modes is what a guest has the terminal in that it was not in before: what is to be
// undone at the end. What cannot be known, for instance whether a mode was on before,
// is taken to be a terminal's default.
type modes struct {
	on       map[string]bool // "?1000", "4": modes that are off by default
	off      map[string]bool // "?25": those that are on by default
	alt      bool            // the other screen is shown
	kitty    [2]int          // flags of the keyboard that were pushed, on each screen
	titles   int             // that were pushed
	sets     map[byte]bool   // character sets that are not ASCII: ( ) * +
	shift    bool            // another set than the first is in use
	keypad   bool
	style    bool // colours and the like of text
	region   bool // margins
	cursor   bool // its form
	linux    bool // the same, of the Linux console
	link     bool
	tabs     bool            // were set or cleared
	progress bool            // ConEmu's, is shown
	colours  map[string]bool // numbers of OSC that reset one
	keys     map[int]bool    // of modifyOtherKeys and its kind
	flags    bool            // of the keyboard, that were set, not pushed
}

// The most that is remembered. What is more is left out.
const (
	maxModes  = 128
	maxPushes = 32
)

func newModes() modes {
	return modes{on: map[string]bool{}, off: map[string]bool{}, sets: map[byte]bool{}, colours: map[string]bool{}, keys: map[int]bool{}}
}

// onByDefault are the modes that are on, or on some terminals: setting them leaves
// nothing. Of those in resetOn every terminal has them on.
var (
	onByDefault = []string{"12", "?2", "?7", "?8", "?12", "?25", "?1007", "?1010", "?1011", "?1034", "?1035", "?1036", "?1039", "?1048", "?2027"}
	resetOn     = []string{"?7", "?8", "?25"}
	altScreens  = []string{"?1047", "?1049", "?47"}
)

// set notes that a mode is set or reset, and reports whether it can be.
func (m *modes) set(key string, mode int) bool {
	prefix, final := key[:len(key)-1], key[len(key)-1]
	name := prefix + strconv.Itoa(mode)
	if slices.Contains(onByDefault, name) {
		if slices.Contains(resetOn, name) {
			setTo(m.off, name, final != 'h')
		}
		return true
	}
	if final != 'l' && !m.on[name] && len(m.on) >= maxModes {
		return false
	}
	setTo(m.on, name, final != 'l') // a mode that is restored may be on
	if slices.Contains(altScreens, name) {
		m.alt = final != 'l'
	}
	return true
}

func setTo[K comparable](set map[K]bool, k K, v bool) {
	if v {
		set[k] = true
	} else {
		delete(set, k)
	}
}

// screen is the index of the screen that is shown.
func (m *modes) screen() int {
	if m.alt {
		return 1
	}
	return 0
}

// csi notes what another CSI sequence leaves, and reports whether it can be undone.
func (m *modes) csi(c control) bool {
	first := c.params[0]
	switch c.key {
	case "m":
		m.style = c.given && (len(c.params) > 1 || first != 0)
	case "r":
		m.region = c.given
	case " q":
		m.cursor = first != 0
	case "g":
		m.tabs = true
	case "?W":
		m.tabs = first != 5
	case "?c":
		m.linux = first != 0
	case ">m", ">n":
		if len(m.keys) >= maxModes {
			return false
		}
		setTo(m.keys, first, c.key != ">m" || len(c.params) > 1 && c.params[1] != 0)
	case "=u":
		m.flags = first != 0
	case ">u":
		if m.kitty[m.screen()] >= maxPushes {
			return false
		}
		m.kitty[m.screen()]++
	case "<u":
		n := &m.kitty[m.screen()]
		*n = max(0, *n-max(1, first))
	case "t":
		switch {
		case first == 22 && m.titles >= maxPushes:
			return false
		case first == 22:
			m.titles++
		case first == 23:
			m.titles = max(0, m.titles-1)
		}
	}
	return true
}

// escape notes what an ESC sequence leaves.
func (m *modes) escape(inter string, final byte) {
	switch {
	case inter == "" && final == 'c':
		titles := m.titles
		*m = newModes()
		m.titles = titles
	case inter == "" && (final == '=' || final == '>'):
		m.keypad = final == '='
	case inter == "" && (final == 'n' || final == 'o'):
		m.shift = true
	case inter == "" && final == 'H':
		m.tabs = true
	case inter != "" && inter[0] != '#':
		which := inter[0]
		if i := strings.IndexByte("-./", which); i >= 0 { // of 96 characters
			which = ")*+"[i]
		}
		setTo(m.sets, which, inter[0] != which || final != 'B' || len(inter) > 1)
	}
}

// shifted notes an SO or SI.
func (m *modes) shifted(c byte) { m.shift = c == so }

// reset appends what undoes all of it.
func (m *modes) reset(b []byte) []byte {
	b = m.appendModes(b, []string{"?2026"}) // else nothing is shown
	b = m.popKeys(b)
	n := len(b)
	if b = m.appendModes(b, altScreens); len(b) > n {
		m.alt = false
		b = m.popKeys(b)
	}
	if m.flags {
		b = append(b, "\x1b[=0u"...)
	}
	b = m.appendModes(b, slices.Sorted(maps.Keys(m.on)))
	for _, name := range slices.Sorted(maps.Keys(m.off)) {
		b = append(b, "\x1b["+name+"h"...)
	}
	return m.resetRest(b)
}

// appendModes resets those of the modes that are set.
func (m *modes) appendModes(b []byte, names []string) []byte {
	for _, name := range names {
		if m.on[name] {
			b = append(b, "\x1b["+name+"l"...)
			delete(m.on, name)
		}
	}
	return b
}

// popKeys pops what was pushed on the screen that is shown.
func (m *modes) popKeys(b []byte) []byte {
	if n := m.kitty[m.screen()]; n > 0 {
		b = append(b, "\x1b[<"+strconv.Itoa(n)+"u"...)
		m.kitty[m.screen()] = 0
	}
	return b
}

func (m *modes) resetRest(b []byte) []byte {
	for _, n := range slices.Sorted(maps.Keys(m.keys)) {
		b = append(b, "\x1b[>"+strconv.Itoa(n)+"m"...)
	}
	for _, r := range []struct {
		left bool
		undo string
	}{
		{m.keypad, "\x1b>"},
		{m.region, "\x1b7\x1b[r\x1b8"}, // margins move the cursor
		{m.sets['('], "\x1b(B"}, {m.sets[')'], "\x1b)B"}, {m.sets['*'], "\x1b*B"}, {m.sets['+'], "\x1b+B"},
		{m.shift, "\x0f"},
		{m.style, "\x1b[m"},
		{m.cursor, "\x1b[0 q"},
		{m.linux, "\x1b[?0c"},
		{m.link, "\x1b]8;;\x1b\\"},
		{m.tabs, "\x1b[?5W"},
		{m.progress, "\x1b]9;4;0\x1b\\"},
	} {
		if r.left {
			b = append(b, r.undo...)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(m.colours)) {
		b = append(b, "\x1b]"+n+"\x1b\\"...)
	}
	for range m.titles {
		b = append(b, "\x1b[23;0t"...)
	}
	return b
}
