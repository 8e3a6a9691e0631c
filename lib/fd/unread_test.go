package fd

import (
	"os"
	"testing"
)

func TestUnread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if Unread(w) {
		t.Error("a pipe with a reader is unread")
	}
	r.Close()
	if !Unread(w) {
		t.Error("a pipe whose reader is gone is read")
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if Unread(file) {
		t.Error("a file is unread")
	}
}
