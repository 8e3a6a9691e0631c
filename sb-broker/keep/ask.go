package keep

import (
	"errors"
	"fmt"
	"io"
	"os"

	"sb/lib/say"

	"golang.org/x/term"
)

// What the keys of a terminal send that is in no secret.
const (
	ctrlC     = 0x03
	ctrlD     = 0x04
	backspace = 0x08
	ctrlU     = 0x15
	del       = 0x7f
)

// What is answered at the question without a value: Ctrl-C, and Ctrl-D.
var (
	errInterrupted = errors.New("interrupted")
	errNothing     = errors.New("nothing was entered")
)

// askFor reads a value from stdin, or asks at the terminal.
func askFor(name string, stdin bool) ([]byte, error) {
	if stdin {
		value, err := io.ReadAll(io.LimitReader(os.Stdin, most))
		if err != nil {
			return nil, fmt.Errorf("read the secret %s from stdin: %w", name, err)
		}
		return trim(value), nil
	}
	if !term.IsTerminal(0) {
		return nil, say.WithHint(say.Usage("stdin is no terminal to ask for %s at", name), "sb-run secret set %s --stdin reads it from there", name)
	}
	old, err := term.MakeRaw(0)
	if err != nil {
		return nil, fmt.Errorf("ask for the secret %s: %w", name, err)
	}
	fmt.Fprintf(os.Stderr, "%s (it is not shown): ", name)
	value, err := readHidden(os.Stdin)
	term.Restore(0, old)
	fmt.Fprintln(os.Stderr)
	if errors.Is(err, errInterrupted) {
		return nil, say.Exit(128 + 2) // as SIGINT would end it, but with the terminal as it was
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the secret %s: %w", name, err)
	}
	return value, nil
}

// readHidden reads a line from a terminal in raw mode: one in the mode of lines
// loses what is beyond 4095 bytes, and its end of file is no error to
// term.ReadPassword, which asks again without end.
func readHidden(in io.Reader) (value []byte, err error) {
	value = make([]byte, 0, most)
	var key [1]byte
	for {
		if _, err := io.ReadFull(in, key[:]); err != nil {
			return nil, err
		}
		switch key[0] {
		case '\r', '\n':
			return value, nil
		case ctrlC:
			return nil, errInterrupted
		case ctrlD:
			if len(value) == 0 {
				return nil, errNothing
			}
			return value, nil
		case ctrlU:
			value = value[:0]
		case backspace, del:
			value = value[:max(len(value)-1, 0)]
		default:
			if len(value) < most { // the rest of it is not needed to see that it is too long
				value = append(value, key[0])
			}
		}
	}
}
