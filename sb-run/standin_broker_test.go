package main

import (
	"bufio"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/lib/session"
)

// aSecret is what the stand-in of the keeper hands out.
const aSecret = "the-real-value"

// keeper stands in for sb-broker keep: it answers one request after another.
func (s *standIn) keeper(ready *os.File) error {
	note(filepath.Join(s.dir, "keeper-path"), os.Getenv("PATH"))
	if s.will("dials") {
		io.WriteString(s.files["audit"], "2026-08-26T06:21:28.110Z allow tcp token.example 192.0.2.1:443 token-refresh - by=sb\nnonsense\n")
	}
	fd.Ready(ready, say.Version)
	ended := make(chan error, 1)
	go func() {
		r := bufio.NewReader(s.files["secrets"])
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				ended <- nil
				return
			}
			note(filepath.Join(s.dir, "gets"), line)
			fmt.Fprintf(s.files["secrets"], "value %d\n%s", len(aSecret), aSecret)
		}
	}()
	go func() { ended <- s.obey() }()
	return <-ended
}

// certificate is what a broker hands over for the guest to trust.
func certificate(n int) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: fmt.Append(nil, "of process ", n)})
}

// broker stands in for sb-broker.
func (s *standIn) broker(ready *os.File) error {
	if s.will("asks") {
		io.WriteString(s.files["secrets"], "get anthropic\n")
		line, err := bufio.NewReader(s.files["secrets"]).ReadString('\n')
		note(filepath.Join(s.dir, "got"), fmt.Sprint(line, err))
	}
	out := s.files["ca-out"]
	if s.will("leaks-a-key") {
		fd.Ready(ready, say.Version)
		pem.Encode(out, &pem.Block{Type: "PRIVATE KEY", Bytes: []byte("k")})
		out.Close()
		return s.wait()
	}
	out.Write(certificate(os.Getpid()))
	out.Close()
	fd.Ready(ready, say.Version)
	if s.will("dies-when-ready") {
		return errors.New("it broke")
	}
	return s.obey()
}

// prepare answers for a guest that is prepared, or that cannot be.
func (s *standIn) prepare(sv *session.Served) {
	if s.will("cannot-prepare") {
		sv.Exit(session.Status{Code: 1, Error: "trust a certificate: the disk is full\x1b[2J"})
		return
	}
	sv.Exit(session.Status{})
}
