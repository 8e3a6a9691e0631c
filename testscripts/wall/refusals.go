package main

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"sb/lib/audit"
)

// refusals causes n of them, of each gate, as fast as the wire takes them. The
// log must be short and count each.
func refusals(r *report, n int) error {
	l, err := newLab("good.example.org")
	if err != nil {
		return err
	}
	defer l.close()
	go drain(l.frames[1])
	s := newSender(l.frames[1])
	gateway := netip.MustParseAddrPort(gatewayDNS)
	sent := map[audit.Gate]float64{}
	began := time.Now()
	for i := range n {
		to, from := address("45.0.0.0", i), uint16(1024+i%50000)
		gate, err := audit.Gate(""), error(nil)
		switch i % 5 {
		case 0:
			gate, err = audit.TCP, s.syn(from, netip.AddrPortFrom(to, 443))
		case 1:
			gate, err = audit.UDP, s.udp(from, netip.AddrPortFrom(to, 443), []byte("quic"))
		case 2:
			gate, err = audit.ICMP, s.ping(to)
		case 3:
			gate, err = audit.Frame, s.send(0x86dd, make([]byte, 40))
		case 4:
			q, qerr := question(uint16(i), fmt.Sprintf("x%d.evil.example", i))
			if qerr != nil {
				return qerr
			}
			gate, err = audit.DNS, s.udp(from, gateway, q)
		}
		if err != nil {
			return err
		}
		sent[gate]++
	}
	fmt.Printf("  %.0f a second\n", float64(n)/time.Since(began).Seconds())
	if err := l.settled(); err != nil {
		return err
	}
	_, peak := memory(l.gate)
	l.endGate()
	lines, err := l.log()
	if err != nil {
		return err
	}
	counted := map[audit.Gate]float64{}
	for _, line := range lines {
		if line.Verdict == audit.Deny {
			counted[line.Gate] += float64(line.Count())
		}
	}
	for _, gate := range []audit.Gate{audit.TCP, audit.UDP, audit.ICMP, audit.Frame, audit.DNS} {
		r.same(fmt.Sprintf("refusals of %s that the log counts", gate), counted[gate], sent[gate])
	}
	r.most("lines of the log", float64(len(lines)), 200, "")
	st, err := os.Stat(l.file("audit.log"))
	if err != nil {
		return err
	}
	r.most("the log's size", float64(st.Size())/1024, 64, "KiB")
	r.most("the most resident memory", peak/1024, 256, "MiB")
	return nil
}
