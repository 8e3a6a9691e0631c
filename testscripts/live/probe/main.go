// Probe is what live tests run in a guest where no everyday tool says exactly
// what happened. Every answer is one line; it exits 0 whatever the answer.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Println("usage: probe dns|dnstcp|tcp|send|tls|udp|echo|cut|hold|pour|frames|fetch|plant …")
		os.Exit(2)
	}
	began := time.Now()
	answer := run(os.Args[1], os.Args[2:])
	fmt.Printf("%s ms=%d\n", answer, time.Since(began).Milliseconds())
}

func run(what string, args []string) string {
	switch what {
	case "dns", "dnstcp":
		return dns(what == "dnstcp", args)
	case "tcp": // ADDR
		c, err := net.DialTimeout("tcp", args[0], 10*time.Second)
		if err != nil {
			return failure(err)
		}
		c.Close()
		return "connected"
	case "send": // ADDR BYTES: what comes back first
		return send(args[0], args[1])
	case "tls": // ADDR NAME CAFILE
		return dialTLS(args)
	case "udp": // ADDR TEXT
		return sendUDP(args[0], args[1])
	case "echo": // ADDR BYTES
		n, _ := strconv.Atoi(args[1])
		return echo(args[0], n)
	case "cut": // ADDR TEXT|BYTES BYTES
		n, _ := strconv.ParseInt(args[2], 10, 64)
		return cut(args[0], args[1], n)
	case "frames": // DEVICE ALLOWED NEVER
		return frames(args[0], args[1], args[2])
	case "fetch": // AS HOST…
		return fetch(args[0], args[1:])
	case "plant": // FILE
		return plant(args[0])
	case "pour": // ADDR
		return pour(args[0])
	case "hold": // ADDR TEXT
		return hold(args[0], args[1])
	}
	return "unknown " + what
}

// failure words an error by its kind.
func failure(err error) string {
	text := err.Error()
	for _, kind := range []string{"refused", "reset", "timeout", "unreachable", "alert", "EOF", "no such host"} {
		if strings.Contains(text, kind) {
			return kind
		}
	}
	return "failed: " + text
}

func send(addr, text string) string {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return failure(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, unescape(text)); err != nil {
		return failure(err)
	}
	c.SetReadDeadline(time.Now().Add(15 * time.Second))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if n == 0 {
		return failure(err)
	}
	first, _, _ := strings.Cut(string(b[:n]), "\n")
	return "got " + strings.TrimSpace(first)
}

func dialTLS(args []string) string {
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(args[2])
	if err != nil {
		return err.Error()
	}
	pool.AppendCertsFromPEM(pem)
	d := &net.Dialer{Timeout: 10 * time.Second}
	conf := &tls.Config{ServerName: args[1], RootCAs: pool}
	if args[1] == "-" { // no name on the wire
		conf.ServerName, conf.InsecureSkipVerify = "", true
	}
	c, err := tls.DialWithDialer(d, "tcp", args[0], conf)
	if err != nil {
		return failure(err)
	}
	defer c.Close()
	return "verified " + args[1]
}

func sendUDP(addr, text string) string {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return failure(err)
	}
	c.SetDeadline(time.Now().Add(3 * time.Second))
	for range 2 { // the error of the first send shows at the second
		if _, err := c.Write([]byte(text)); err != nil {
			return failure(err)
		}
		b := make([]byte, 2048)
		n, err := c.Read(b)
		if err == nil {
			return "got " + string(b[:n])
		}
		if !strings.Contains(err.Error(), "timeout") {
			return failure(err)
		}
	}
	return "timeout"
}

// dns NAME [TYPE]: asks the gateway and prints the code, the answers and the
// extended error.
func dns(tcp bool, args []string) string {
	types := map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "TXT": dnsmessage.TypeTXT, "HTTPS": dnsmessage.TypeHTTPS, "MX": dnsmessage.TypeMX}
	typ := dnsmessage.TypeA
	if len(args) > 1 {
		typ = types[args[1]]
	}
	name, err := dnsmessage.NewName(strings.TrimSuffix(args[0], ".") + ".")
	if err != nil {
		return err.Error()
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
	b.StartQuestions()
	b.Question(dnsmessage.Question{Name: name, Type: typ, Class: dnsmessage.ClassINET})
	b.StartAdditionals()
	var rh dnsmessage.ResourceHeader
	rh.SetEDNS0(1232, 0, false)
	b.OPTResource(rh, dnsmessage.OPTResource{})
	msg, err := b.Finish()
	if err != nil {
		return err.Error()
	}
	network := "udp"
	if tcp {
		network = "tcp"
		msg = append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
	}
	server := "198.18.0.1:53"
	if len(args) > 2 {
		server = args[2]
	}
	c, err := net.DialTimeout(network, server, 5*time.Second)
	if err != nil {
		return failure(err)
	}
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(msg); err != nil {
		return failure(err)
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return failure(err)
	}
	got := buf[:n]
	if tcp {
		got = got[2:]
	}
	return describe(got)
}

func describe(msg []byte) string {
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("rcode=%d answers=%d", m.RCode, len(m.Answers))
	for _, a := range m.Answers {
		switch r := a.Body.(type) {
		case *dnsmessage.AResource:
			text += " " + net.IP(r.A[:]).String()
		case *dnsmessage.TXTResource:
			text += " " + strings.Join(r.TXT, "")
		}
	}
	for _, a := range m.Additionals {
		if opt, ok := a.Body.(*dnsmessage.OPTResource); ok {
			for _, o := range opt.Options {
				if o.Code == 15 && len(o.Data) > 2 {
					text += fmt.Sprintf(" ede=%d:%s", binary.BigEndian.Uint16(o.Data), o.Data[2:])
				}
			}
		}
	}
	return text
}
