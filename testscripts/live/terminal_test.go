package live

import (
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// shell types into a shell on a terminal.
type shell struct {
	t      *testing.T
	master *os.File
	screen *lockedBuffer
	s      *started
	seen   int // of the screen
}

// types types, and waits until the mark is shown behind what was shown before. It
// returns what was shown since.
func (sh *shell) types(keys string, mark string) string {
	sh.t.Helper()
	sh.seen = len(sh.screen.String())
	sh.master.WriteString(keys)
	sh.s.until("the screen shows "+mark, func() bool { return strings.Contains(sh.screen.String()[sh.seen:], mark) })
	return sh.screen.String()[sh.seen:]
}

func (sh *shell) shows(got string, wants ...string) {
	sh.t.Helper()
	for _, want := range wants {
		if !strings.Contains(got, want) {
			sh.t.Errorf("%q lacks %q", got, want)
		}
	}
}

// TestTerminalLive: a shell with job control, pastes, full-screen programs and another
// size is as it would be here; what acts on the terminal is left out; and when the
// shell is killed the terminal is left as it was.
func TestTerminalLive(t *testing.T) {
	t.Parallel()
	claim(t, "terminal")
	screen, code := onTerminal(t, box{script: `PS1='$ready ' ready='<>' exec bash --norc --noprofile -i`}, 40, 120, func(master *os.File, screen *lockedBuffer, s *started) {
		sh := &shell{t: t, master: master, screen: screen, s: s}
		sh.types("", "<> ")
		sh.shows(sh.types("echo \"[$TERM|$COLORTERM|$LANG|$(stty size)]\"; echo a-$((1))\r", "a-1\r\n"), "[xterm-256color|truecolor|C.UTF-8|40 120]")
		sh.shows(screen.String(), "\x1b[?2004h")
		sh.types("\x1b[200~echo paste-$((1))\necho paste-$((2))\x1b[201~", "paste-$((2))")
		if strings.Contains(screen.String(), "paste-1") {
			t.Error("control: what is pasted runs before it is entered")
		}
		sh.shows(sh.types("\r", "paste-2\r\n"), "paste-1\r\n")
		sh.jobs()
		sh.fullScreen()
		pty.Setsize(master, &pty.Winsize{Rows: 50, Cols: 132})
		sh.shows(sh.types("until [ \"$(stty size)\" = '50 132' ]; do sleep 0.1; done; echo size-$((1))\r", "size-1\r\n"))
		got := sh.types(`printf '\033[21t\033]52;c;?\007\033P$qm\033\\\033[32mgreen\033[m \033[6n\n'; echo b-$((1))`+"\r", "b-1\r\n")
		sh.shows(got, "\x1b[32mgreen\x1b[m \x1b[6n\r\n")
		for _, not := range []string{"\x1b[21t", "\x1b]52", "\x1bP"} {
			if strings.Contains(screen.String(), not) {
				t.Errorf("the terminal got %q", not)
			}
		}
		sh.types("printf '\\033[?1049h\\033[?1000h\\033[?25l'; kill -9 $$\r", "\x1b[?1000h")
	})
	if code != 137 {
		t.Errorf("exit code %d", code)
	}
	_, end, _ := strings.Cut(screen, "\x1b[?1049h\x1b[?1000h\x1b[?25l")
	for _, want := range []string{"\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h", "sb-run: the terminal was spared 1 clipboard read, 1 title report, 1 report of settings (--terminal=raw"} {
		if !strings.Contains(end, want) {
			t.Errorf("at the end %q lacks %q", end, want)
		}
	}
}

// jobs stops a job and has it go on in the background, and another one in the
// foreground, where Ctrl-C ends it.
func (sh *shell) jobs() {
	sh.t.Helper()
	sh.types("sh -c 'echo job-$((1)); exec sleep 1000'\r", "job-1\r\n")
	sh.types("\x1a", "Stopped")
	sh.types("bg; echo c-$((1))\r", "c-1\r\n")
	sh.shows(sh.types("jobs; kill %1; wait; echo d-$((1))\r", "d-1\r\n"), "Running")
	sh.types("sh -c 'echo job-$((2)); read x; echo got-$x; exec sleep 1000'\r", "job-2\r\n")
	sh.types("\x1a", "Stopped")
	sh.types("fg\r", "exec sleep 1000'\r\n")
	sh.types("y\r", "got-y\r\n") // it reads in the foreground alone
	sh.types("\x03", "<> ")
	sh.shows(sh.types("echo code-$?\r", "code-1"), "code-130")
}

// fullScreen writes a file in an editor, and looks at what runs.
func (sh *shell) fullScreen() {
	sh.t.Helper()
	sh.types("busybox vi /tmp/text\r", "\x1b[?1049h")
	sh.types("i", "I /tmp/text")
	sh.types("hello", "hello")
	sh.types("\x1b", "- /tmp/text")
	sh.types(":wq\r", "\x1b[?1049l")
	sh.types("cat /tmp/text; echo ✳ e-$((1))\r", "hello\r\n✳ e-1\r\n")
	sh.shows(sh.types("top -d 1 -n 2; echo f-$((1))\r", "f-1\r\n"), "load average", "\x1b[H", "\x1b[7m")
	sh.types("seq 1000 | busybox less; echo g-$((1))\r", "\x1b[7m")
	sh.types("Gq", "g-1\r\n")
}
