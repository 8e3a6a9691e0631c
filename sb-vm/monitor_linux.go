package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxMonitor bounds what QEMU may say on its monitor, in bytes.
const maxMonitor = 1 << 20

// What is said on the monitor (QMP, docs/interop/qmp-spec of QEMU). Memory that
// has a file is not part of the state: it is saved as it is changed.
var monitorHello = []string{`{"execute": "qmp_capabilities"}`,
	`{"execute": "migrate-set-capabilities", "arguments": {"capabilities": [` +
		`{"capability": "x-ignore-shared", "state": true}, {"capability": "events", "state": true}]}}`,
	// No frames of QEMU's own tell the wire that the machine has come.
	`{"execute": "migrate-set-parameters", "arguments": {"announce-rounds": 0}}`,
}

const (
	monitorState   = `{"execute": "getfd", "arguments": {"fdname": "state"}}` // whose file comes with it
	monitorSave    = `{"execute": "migrate", "arguments": {"uri": "fd:state"}}`
	monitorRestore = `{"execute": "migrate-incoming", "arguments": {"uri": "fd:state"}}`
	monitorWhy     = `{"execute": "query-migrate"}`
)

// migrate has the QEMU whose monitor this is do one of the two with that state,
// and waits until it is done: the machine then stands still for good, or runs.
func migrate(monitor *os.File, command string, state *os.File) error {
	for _, c := range append(monitorHello[:len(monitorHello):len(monitorHello)], monitorState, command) {
		var with *os.File
		if c == monitorState {
			with = state
		}
		if err := send(monitor, c, with); err != nil {
			return err
		}
	}
	return awaitMigration(monitor, func() error { return send(monitor, monitorWhy, nil) })
}

// awaitMigration reads what QEMU says up to the end of the migration. If it fails,
// ask asks why.
func awaitMigration(monitor io.Reader, ask func() error) error {
	in := json.NewDecoder(io.LimitReader(monitor, maxMonitor))
	for {
		var said struct {
			Error  *struct{ Desc string }
			Event  string
			Data   struct{ Status string }
			Return struct {
				Why string `json:"error-desc"`
			}
		}
		if err := in.Decode(&said); err != nil {
			return err
		}
		switch {
		case said.Error != nil:
			return fmt.Errorf("QEMU says: %.500q", said.Error.Desc)
		case said.Return.Why != "":
			return fmt.Errorf("QEMU says: %.500q", said.Return.Why)
		case said.Event != "MIGRATION":
		case said.Data.Status == "completed":
			return nil
		case said.Data.Status == "failed":
			if err := ask(); err != nil {
				return err
			}
		}
	}
}

// send writes a line to the monitor, and a descriptor with it if there is one:
// QEMU keeps it for the getfd that is next.
func send(monitor *os.File, line string, file *os.File) error {
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	raw, err := monitor.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), []byte(line+"\n"), rights, nil, 0)
		return failed != unix.EAGAIN
	})
	return errors.Join(err, failed)
}
