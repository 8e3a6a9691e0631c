package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// gatewayDNS is where the guest asks.
const gatewayDNS = "198.18.0.1:53"

// question is a query for the addresses of name.
func question(id uint16, name string) ([]byte, error) {
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, err
	}
	b := dnsmessage.NewBuilder(make([]byte, 0, 128), dnsmessage.Header{ID: id, RecursionDesired: true})
	b.StartQuestions()
	b.Question(dnsmessage.Question{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET})
	return b.Finish()
}

// read1 reads an answer: the address in it, invalid if the name does not exist.
func read1(msg []byte) (id uint16, name string, a netip.Addr, err error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil {
		return 0, "", a, err
	}
	q, err := p.Question()
	if err != nil {
		return 0, "", a, err
	}
	name = strings.TrimSuffix(q.Name.String(), ".")
	p.SkipAllQuestions()
	switch h.RCode {
	case dnsmessage.RCodeNameError:
		return h.ID, name, a, nil
	case dnsmessage.RCodeSuccess:
		if _, err := p.AnswerHeader(); err != nil {
			return 0, "", a, err
		}
		r, err := p.AResource()
		return h.ID, name, netip.AddrFrom4(r.A), err
	}
	return 0, "", a, fmt.Errorf("%s: %v", name, h.RCode)
}

// resolve asks for one name, as often as it takes: under a flood, a question may
// be lost.
func resolve(name string) (string, error) {
	c, err := net.Dial("udp", gatewayDNS)
	if err != nil {
		return "", err
	}
	defer c.Close()
	q, err := question(1, name)
	if err != nil {
		return "", err
	}
	buf := make([]byte, 1500)
	for range 10 {
		c.Write(q)
		c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(buf)
		if err != nil {
			continue
		}
		_, _, a, err := read1(buf[:n])
		if err == nil && !a.IsValid() {
			err = fmt.Errorf("%s does not exist", name)
		}
		return a.String(), err
	}
	return "", fmt.Errorf("%s: no answer", name)
}
