package keep

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strings"
)

// security is the system's own tool for its keychain.
const security = "/usr/bin/security"

// loadItem reads an entry that another program made, and says how it is written
// back in that program's form: go-keyring would mark it as its own.
func loadItem(item string) (text []byte, save func([]byte) error, err error) {
	u, err := user.Current()
	if item == "" || err != nil {
		return nil, nil, errors.New("there is no such entry")
	}
	text, err = exec.Command(security, "find-generic-password", "-a", u.Username, "-s", item, "-w").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("read %q of the keychain: %w", item, err)
	}
	return bytes.TrimSpace(text), func(text []byte) error {
		// By stdin, not as an argument, which other programs could see.
		cmd := exec.Command(security, "-i")
		cmd.Stdin = strings.NewReader(fmt.Sprintf("add-generic-password -U -a %q -s %q -X %q\n", u.Username, item, hex.EncodeToString(text)))
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("write %q of the keychain: %w", item, err)
		}
		return nil
	}, nil
}
