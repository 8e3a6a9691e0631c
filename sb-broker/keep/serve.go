package keep

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sb/lib/audit"
	"sb/lib/binding"
	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/say"
)

// wires are the descriptors of a keeper that serves.
type wires struct{ secrets, leash, ready, ctl, audit *os.File }

// serveMain serves one sandbox, until its wire or its leash ends.
func serveMain(args []string) error {
	flags := say.Flags("sb-broker keep", "--secrets N [flags] NAME…",
		"Hands the named secrets to the broker at the other end of --secrets. It reads each once before it is ready, so that one that is missing is known before a machine boots.")
	secrets := flags.Int("secrets", -1, "where the broker asks: a stream socket (descriptor `N`)")
	ready := flags.Int("ready", -1, "where to say that all of them can be read (descriptor `N`)")
	leash := flags.Int("leash", -1, "ends the keeper when it ends: a pipe (descriptor `N`)")
	control := flags.Int("ctl", -1, "sb-run: a stream socket (descriptor `N`)")
	log := flags.Int("audit", -1, "where to write lines about refreshed sign-ins (descriptor `N`)")
	given := flags.StringArray("fd", nil, "the source fd:`N=M` is descriptor M here")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	names := flags.Args()
	if *secrets < 0 || len(names) == 0 {
		return say.WithHint(say.Usage("sb-broker keep needs --secrets and the names of secrets, or a verb"), "sb-broker keep --help lists the verbs; sb-run starts it with the rest")
	}
	for _, name := range names {
		if !binding.ValidSecret(name) {
			return say.Usage("%q is no name of a secret", name)
		}
	}
	k, err := newKeeper()
	if err != nil {
		return err
	}
	w, err := take(map[string]int{"secrets": *secrets, "leash": *leash, "ready": *ready, "ctl": *control, "audit": *log})
	if err != nil {
		return err
	}
	if err := k.takeGiven(*given, names); err != nil {
		return err
	}
	if err := fd.CloseRest(); err != nil {
		return err
	}
	k.logTo(w.audit)
	return k.serve(w, names)
}

func take(given map[string]int) (w wires, err error) {
	for _, f := range []struct {
		to   **os.File
		name string
		kind fd.Kind
	}{{&w.secrets, "secrets", fd.Stream}, {&w.leash, "leash", fd.Pipe}, {&w.ready, "ready", fd.Output}, {&w.ctl, "ctl", fd.Stream}, {&w.audit, "audit", fd.Output}} {
		if given[f.name] < 0 {
			continue
		}
		if *f.to, err = fd.Take(f.name, given[f.name], f.kind); err != nil {
			return w, err
		}
	}
	return w, nil
}

// takeGiven reads the descriptors that are sources of the names, or the store's key.
func (k *keeper) takeGiven(words, names []string) error {
	at := map[int]int{}
	for _, word := range words {
		from, to, ok := strings.Cut(word, "=")
		n, err1 := strconv.Atoi(from)
		m, err2 := strconv.Atoi(to)
		if !ok || err1 != nil || err2 != nil {
			return say.Usage("--fd: %q is not N=M", word)
		}
		at[n] = m
	}
	if err := k.takeOne("the store's key", k.settings.Store.Key, at); err != nil {
		return err
	}
	for _, name := range names {
		if err := k.takeOne("secret "+name, k.settings.Sources[name], at); err != nil {
			return err
		}
	}
	return nil
}

// takeOne reads the descriptor that is the source of what, if one is.
func (k *keeper) takeOne(what string, s binding.Source, at map[int]int) error {
	n := s.FD()
	if n < 0 || k.given[n] != nil {
		return nil
	}
	m, ok := at[n]
	if !ok {
		m = n
	}
	f, err := fd.Take(s.String(), m, fd.Input)
	if errors.Is(err, fd.ErrNotOpen) || errors.Is(err, fd.ErrInUse) { // by our own runtime: it was not open before
		err = fmt.Errorf("descriptor %d is not open", n)
	}
	if err != nil {
		return say.WithHint(fmt.Errorf("%s (%s): %w", what, s, err), "give it: sb-run … %d<FILE", n)
	}
	f.Seek(0, io.SeekStart) // a file may have been read by the keeper before this one
	value, err := io.ReadAll(io.LimitReader(f, most))
	f.Close()
	if err != nil {
		return fmt.Errorf("%s (%s): %w", what, s, err)
	}
	k.given[n] = value
	return nil
}

// logTo has what is dialled written to f, each line in one write.
func (k *keeper) logTo(f *os.File) {
	if f == nil {
		return
	}
	for _, l := range k.logins {
		l.at.log = func(line audit.Line) error {
			_, err := f.Write(line.Append(nil))
			return err
		}
	}
}

// serve answers the broker.
func (k *keeper) serve(w wires, names []string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for _, name := range names {
		value, _, err := k.read(ctx, name)
		clear(value)
		if err != nil {
			return err
		}
	}
	if err := fd.Ready(w.ready, say.Version); err != nil {
		return err
	}
	if w.ctl != nil {
		c, err := ctl.NewConn(w.ctl)
		if err != nil {
			return err
		}
		defer c.Close()
		go c.SayAlive() // however long a secret takes; sb-run's end is the leash's
	}
	answered := make(chan error, 1)
	go func() { answered <- k.answer(ctx, w.secrets, names) }()
	select {
	case err := <-answered:
		return err
	case <-fd.Leash(w.leash):
	case <-signals:
	}
	return nil
}

// maxRequest bounds a line of the wire: get, a name and a line break.
const maxRequest = 128

// answer answers requests one after the other; the end of the wire is its end.
func (k *keeper) answer(ctx context.Context, wire io.ReadWriter, names []string) error {
	r := bufio.NewReaderSize(wire, maxRequest)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case err != nil:
			return fmt.Errorf("read a request of the broker's: %w", err)
		}
		name, ok := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), "get ")
		if !ok {
			return errors.New("read a request of the broker's: it is not get NAME")
		}
		if err := k.answerOne(ctx, wire, name, slices.Contains(names, name)); err != nil {
			return fmt.Errorf("answer the broker: %w", err)
		}
	}
}

// maxText bounds the words of an error on the wire, in bytes.
const maxText = 1000

func (k *keeper) answerOne(ctx context.Context, wire io.Writer, name string, known bool) error {
	var value []byte
	err := error(fault{"unknown", errors.New("the keeper of this sandbox was not given that name")})
	if known {
		value, _, err = k.read(ctx, name)
	}
	if err != nil {
		text := say.Safe(strings.ReplaceAll(err.Error(), "\n", "; "))
		_, err = fmt.Fprintf(wire, "error %s %s\n", codeOf(err), text[:min(len(text), maxText)])
		return err
	}
	// One piece: the length and the value. It is zeroed, as far as Go allows.
	out := append(make([]byte, 0, len(value)+32), fmt.Sprintf("value %d\n", len(value))...)
	out = append(out, value...)
	_, err = wire.Write(out)
	clear(out)
	clear(value)
	return err
}
