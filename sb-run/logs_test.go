package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPlantedLinks: what a guest could have put in the place of a log leads
// nowhere: nothing is written through it, read through it or kept.
func TestPlantedLinks(t *testing.T) {
	_, logs := stateHome(t)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := newRunDir("x")
	if err != nil {
		t.Fatal(err)
	}
	plant := func(name string) {
		t.Helper()
		if err := os.Symlink(victim, d.file(name)); err != nil {
			t.Fatal(err)
		}
	}
	plant("audit.log")
	if f, err := d.openAudit(); err == nil {
		t.Error("a link was opened as the audit log")
		f.Close()
	}
	var shown strings.Builder
	d.show(&shown, "audit.log")
	plant("console.log")
	if end := d.consoleEnd(); len(end) > 0 || shown.Len() > 0 {
		t.Errorf("read through a link: %q, %q", end, shown.String())
	}
	os.Remove(d.file("audit.log"))
	if err := os.WriteFile(d.file("audit.log"), []byte("control\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plant("audit.log.next")
	f, err := d.rotateAudit()
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("a line\n")
	f.Close()
	d.show(&shown, "audit.log.1")
	d.show(&shown, "audit.log")
	if shown.String() != "control\na line\n" {
		t.Errorf("control: the log is %q", shown.String())
	}
	os.Remove(d.file("audit.log.1"))
	plant("audit.log.1")
	if err := d.remove(); err != nil {
		t.Error(err)
	}
	if kept := names(t, logs); len(kept) != 1 || kept[0] != d.name+".log" {
		t.Errorf("kept %q", kept)
	}
	if text, _ := os.ReadFile(victim); string(text) != "precious\n" {
		t.Errorf("the file that the links lead to is %q", text)
	}
}

// TestShownLog: what is shown of a log cannot act on a terminal.
func TestShownLog(t *testing.T) {
	d := &runDir{path: t.TempDir()}
	if err := os.WriteFile(d.file("audit.log"), []byte("good line\n\x1b[31mRAW\x1b[0m\a\nlast"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(d.file("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	d.show(&shown, "audit.log")
	d.show(&shown, "fifo") // and is not waited for
	d.show(&shown, "absent")
	if want := "good line\n" + `\x1b[31mRAW\x1b[0m\x07` + "\nlast\n"; shown.String() != want {
		t.Errorf("%q, want %q", shown.String(), want)
	}
}
