package vt

import (
	"fmt"
	"strings"
)

// kind is what a sequence is counted as when it is left out.
type kind int

const (
	pass kind = iota
	quiet
	answer
	clipRead
	clipWrite
	title
	settings
	screen
	note
	cut
	bell
	window
	printing
	image
	place
	keys
	reading
	eightBit
	broken
	long
	other
	kinds
)

// names are those of kinds, one and many.
var names = [kinds][2]string{
	answer:    {"answerback", "answerbacks"},
	clipRead:  {"clipboard read", "clipboard reads"},
	clipWrite: {"clipboard write", "clipboard writes"},
	title:     {"title report", "title reports"},
	settings:  {"report of settings", "reports of settings"},
	screen:    {"report of the screen", "reports of the screen"},
	note:      {"notification", "notifications"},
	cut:       {"end of a long title or notification", "ends of long titles or notifications"},
	bell:      {"bell", "bells"},
	window:    {"window command", "window commands"},
	printing:  {"print command", "print commands"},
	image:     {"image", "images"},
	place:     {"file, link or directory", "files, links or directories"},
	keys:      {"definition of keys", "definitions of keys"},
	reading:   {"change of the terminal's parser", "changes of the terminal's parser"},
	eightBit:  {"8-bit control", "8-bit controls"},
	broken:    {"malformed sequence", "malformed sequences"},
	long:      {"sequence without an end", "sequences without an end"},
	other:     {"other sequence", "other sequences"},
}

// Counts is how often each kind of sequence was left out.
type Counts [kinds]int64

// Add adds those of d.
func (c *Counts) Add(d Counts) {
	for k, n := range d {
		c[k] += n
	}
}

// String lists what was left out, "" if nothing was: "3 clipboard reads, 1 bell".
func (c Counts) String() string {
	var parts []string
	for k := quiet + 1; k < kinds; k++ {
		switch {
		case c[k] == 1:
			parts = append(parts, "1 "+names[k][0])
		case c[k] > 1:
			parts = append(parts, fmt.Sprintf("%d %s", c[k], names[k][1]))
		}
	}
	return strings.Join(parts, ", ")
}
