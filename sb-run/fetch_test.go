package main

import (
	"strings"
	"testing"

	"sb/sb-run/work"
)

// TestImportedNames: a branch's name does nothing to a terminal.
func TestImportedNames(t *testing.T) {
	var b strings.Builder
	writeImported(&b, []work.Imported{{Ref: "refs/remotes/sb/run/caf\u00e9", ID: "1"}, {Ref: "refs/remotes/sb/run/\u009b2J\u202e\x9b", ID: "2"}})
	if want := "1 refs/remotes/sb/run/caf\u00e9\n2 refs/remotes/sb/run/\\u009b2J\\u202e\\x9b\n"; b.String() != want {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
}
