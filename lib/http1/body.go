package http1

import (
	"bufio"
	"io"
	"strconv"

	"sb/lib/reason"
)

// Body passes the request's body from r to w, byte for byte, and stops where it
// ends. pass passes n bytes of r's, which it may take from beneath r where r
// holds none. Refused means that the framing broke; what was passed before it is
// part of this request.
func (req *Request) Body(w io.Writer, r *bufio.Reader, pass func(n int64) error) error {
	if req.chunked {
		return chunks(w, r, pass)
	}
	return pass(req.length)
}

// chunks passes a chunked body (RFC 9112, section 7.1): sizes in hex without
// extensions, and trailers, which no host is read from.
func chunks(w io.Writer, r *bufio.Reader, pass func(n int64) error) error {
	for {
		n, line, err := chunkSize(r)
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		if n == 0 {
			return trailers(w, r)
		}
		if err := pass(n); err != nil {
			return err
		}
		end, err := readLine(r, MaxHead)
		if err != nil {
			return err
		}
		if len(end) != 2 {
			return refuse(reason.HTTPFraming)
		}
		if _, err := w.Write(end); err != nil {
			return err
		}
	}
}

func chunkSize(r *bufio.Reader) (n int64, line []byte, err error) {
	// 16 hex digits and CRLF: no extension fits a size that we take.
	line, err = readLine(r, 64)
	if err == refuse(reason.HTTPTooLong) {
		err = refuse(reason.HTTPFraming)
	}
	if err != nil {
		return 0, nil, err
	}
	// In a base of 16, ParseUint takes digits alone: no sign, no 0x, no _.
	v, err := strconv.ParseUint(string(line[:len(line)-2]), 16, 63)
	if err != nil || v > maxChunk {
		return 0, nil, refuse(reason.HTTPFraming)
	}
	return int64(v), line, nil
}

func trailers(w io.Writer, r *bufio.Reader) error {
	var t Request
	f, err := t.readFields(r)
	if err != nil {
		return err
	}
	// Some servers merge trailers into the head. RFC 9110, section 6.5.1, forbids
	// those that say where a request goes or ends.
	if len(f.hosts)+len(f.lengths)+len(f.encodings)+len(f.upgrades)+len(f.expects) > 0 || f.drops || f.lookalike {
		return refuse(reason.HTTPFraming)
	}
	_, err = w.Write(t.Head)
	return err
}
