package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"sb/lib/fd"

	"golang.org/x/sys/unix"
)

// monitorSays is what migrate makes of a QEMU that answers so.
func monitorSays(t *testing.T, says func(w io.Writer, asked *bufio.Scanner)) error {
	t.Helper()
	near, far, err := fd.Pair("monitor", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	near, err1 := pollable(near)
	far, err2 := pollable(far)
	state, err3 := os.Open(os.DevNull)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer state.Close()
	go func() {
		says(far, bufio.NewScanner(far))
		raw, _ := far.SyscallConn()
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
		io.Copy(io.Discard, far)
		far.Close()
	}()
	return migrate(near, monitorSave, state)
}

func TestMonitor(t *testing.T) {
	const hello = `{"QMP": {"version": {}}}` + "\n" + `{"return": {}}` + "\n"
	event := func(status string) string {
		return fmt.Sprintf(`{"event": "MIGRATION", "data": {"status": %q}}`, status) + "\n"
	}
	for what, c := range map[string]struct{ says, want string }{
		"done":             {hello + event("setup") + event("active") + event("completed"), ""},
		"an error":         {hello + `{"error": {"class": "x", "desc": "no such \u001b thing"}}`, `QEMU says: "no such \x1b thing"`},
		"a failure":        {hello + event("failed") + `{"return": {"status": "failed", "error-desc": "no space"}}`, `QEMU says: "no space"`},
		"its end":          {hello + event("setup"), "EOF"},
		"what is no JSON":  {"QMP\n", "invalid character"},
		"what has no end":  {strings.Repeat(" ", maxMonitor+1) + hello + event("completed"), "EOF"},
		"another's ending": {hello + `{"event": "STOP", "data": {"status": "completed"}}`, "EOF"},
	} {
		t.Run(what, func(t *testing.T) {
			err := monitorSays(t, func(w io.Writer, _ *bufio.Scanner) { io.WriteString(w, c.says) })
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestMonitorBounds: a QEMU that never stops talking is not listened to for ever.
func TestMonitorBounds(t *testing.T) {
	err := monitorSays(t, func(w io.Writer, _ *bufio.Scanner) {
		for {
			if _, err := io.WriteString(w, `{"event": "STOP"}`+"\n"); err != nil {
				return
			}
		}
	})
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, want an end", err)
	}
}

// TestMonitorAsks: the memory's file is left out of what is saved, and the state
// goes where it is told.
func TestMonitorAsks(t *testing.T) {
	var all []string
	err := monitorSays(t, func(w io.Writer, asked *bufio.Scanner) {
		for asked.Scan() {
			if all = append(all, asked.Text()); strings.Contains(asked.Text(), `"migrate"`) {
				io.WriteString(w, `{"event": "MIGRATION", "data": {"status": "completed"}}`)
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"qmp_capabilities", "x-ignore-shared", "announce-rounds", "getfd", "fd:state"} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("it is not asked for %s: %q", want, all)
		}
	}
}
