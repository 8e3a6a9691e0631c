// Package vt is a filter for what a guest writes to the host's terminal.
//
// A terminal obeys what is written to it. Most of that is drawing, and it passes as
// it is: text, colours, cursors, whole screens, the modes of the mouse and the
// keyboard, and the questions that full-screen programs wait for an answer to. Some of
// it acts outside of the picture, or has the terminal type text of the writer's choice
// as if the user had; that is left out, and counted.
//
// The parser is the one of DEC's terminals as Paul Williams drew it
// (vt100.net/emu/dec_ansi_parser), stricter where terminals differ, so that there is
// one reading of what comes out: whole sequences in their 7-bit form and valid UTF-8.
// A control byte within a sequence ends it, and it is left out. C1 controls, as a byte
// or as U+0080 to U+009F, and bytes that are no UTF-8 are written as U+FFFD. A
// sequence longer than it may be is left out to its end.
//
// # Controls
//
//	BS HT LF VT FF CR SO SI   pass
//	BEL                       passes, 10 a second
//	NUL DEL                   left out: they do nothing
//	ENQ                       left out: has the terminal type its answerback text
//	all others                left out: CAN begins ZMODEM transfers on some terminals,
//	                          DC1 and DC3 stop the line, SUB is an error's sign
//
// # ESC
//
// Those pass that draw, save and restore the cursor, choose character sets, the
// keypad, or reset; others not: VT52 mode and "ESC %" change how the terminal
// reads what follows, and would give it another reading than the one here; so does
// S8C1T of what it answers. "ESC }" begins a command of Terminology, which shows files.
//
// # CSI
//
// All pass but (csi.go):
//
//	t     windows: moving, sizing, raising, hiding; 20 and 21 type the title
//	      pass: 14, 15, 16, 18, 19 (sizes), 22 and 23 (the title is kept, restored)
//	>t >T how titles are encoded
//	i ?i  media copy: prints on the host's printer
//	*y #y the checksum of a part of the screen: what stood there before the run can
//	      be read by it, a cell at a time
//	$w $u state reports: they type what the guest designated
//	n     all but 5, 6, ?6, ?996 and >n: of printers, keys, macros, memory
//	h l   ?2 VT52, ?3 and ?40 (resizes), ?18 and ?19 (printing), ?38 Tektronix,
//	      ?46 (logs to a file), ?1001 (a terminal that waits for an answer),
//	      ?1042 and ?1043 (raise the window), ?5522 (clipboard); 2 (locks the
//	      keyboard), 12 (echoes what is typed)
//	?r    restores saved modes: the same
//	?S    all but reading: the limits of graphics
//	"p    another conformance level, another reading
//	+p    a reset that answers with a number of the guest's
//	>f >p how keys are encoded; hides the pointer
//	*|    $| rows and columns of the window
//	$} $~ a status line, which the host's text would go to
//	,~    plays notes; " r", " t" and " u" are how loud keys and bells are
//	'z '{ '| locator reports, which are typed after the end
//	*z    invokes a macro
//	,| ,} colours of the window's frame
//	q     lights of the keyboard
//	y     self-tests
//	]     of the Linux console: blanking, another console to the front
//	[     of the Linux console: it takes what follows for a key
//	      a number above 65,535: some terminals hang over repeats and moves
//
// # OSC
//
// Those pass that are listed (osc.go):
//
//	0 1 2          titles: 256 characters
//	4 5 10 to 19   colours and questions for them, of a strict form; 104 105 110 to 119
//	8              links to http, https and mailto; others lose the link, not the text
//	9 99 777       notifications: 200 bytes, one in 5 s; of ConEmu's the progress
//	52             clipboard: writes of 64 KiB, one a second; no reads
//
// Left out are, of those in use: 3 (X properties), 7 and 1337 CurrentDir and 9;9 (where
// the host's next window opens), 50 (types the name of a font), 51, 133 and 633 (what the
// host's terminal takes for commands to run again), 1337 (files, variables, focus), 5113
// (files), 5522 (clipboard), P and R of the Linux console.
//
// # Others
//
// "ESC k" is a title, of screen and tmux. DCS, APC, PM and SOS are left out: DECRQSS and
// XTGETTCAP type text, DECUDK defines keys, tmux's passthrough leads past the filter of
// a terminal in between, sixel and kitty's images are parsed by a lot of code, and the
// latter read files of the host (t=f).
package vt
