package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"sb/lib/reason"
)

// Forbidden is the answer of the gate to a request that it does not let through.
func Forbidden(code reason.Code, host, fix string) []byte {
	text := fmt.Sprintf("sb: refused: %s", code)
	if host != "" {
		text += fmt.Sprintf(" (host %q)", host)
	}
	if e, ok := reason.Explain(code); ok {
		text += "\n" + e.What
	}
	if fix != "" {
		text += "\n" + fix
	}
	text += "\n"
	return fmt.Appendf(nil, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\nX-Sb-Reason: %s\r\n\r\n%s", len(text), code, text)
}

// Switched passes the answer to an Upgrade request from r to w up to the end of
// its head, any 1xx before it included, and reports whether the server switched
// protocols (101).
func Switched(w io.Writer, r *bufio.Reader) (bool, error) {
	for {
		head, err := answerHead(r)
		if err != nil {
			w.Write(head)
			return false, fmt.Errorf("read the answer to an upgrade: %w", err)
		}
		if _, err := w.Write(head); err != nil {
			return false, err
		}
		line, _, _ := strings.Cut(string(head), "\n")
		status, code := strings.FieldsFunc(line, isBlank), ""
		if len(status) > 1 && strings.HasPrefix(status[0], "HTTP/1.") {
			code = status[1]
		}
		switch {
		case code == "101":
			return true, nil
		case len(code) == 3 && code[0] == '1':
			continue // an interim answer; the final one follows
		}
		return false, nil
	}
}

// isBlank is what may stand between the words of an answer's first line (RFC 9112,
// section 4).
func isBlank(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// answerHead reads up to and with the empty line, of any spelling.
func answerHead(r *bufio.Reader) (head []byte, err error) {
	for start, n := 0, 0; ; {
		part, err := r.ReadSlice('\n')
		head = append(head, part...)
		switch {
		case len(head) > MaxHead || n > MaxFields:
			return head, Refused{reason.HTTPTooLong}
		case err == bufio.ErrBufferFull:
			continue // the line is longer than the buffer
		case err != nil:
			return head, err
		case len(bytes.TrimRight(head[start:], "\r\n")) == 0:
			return head, nil
		}
		start = len(head)
		n++
	}
}
