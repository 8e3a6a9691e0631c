package world

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Attacker is the zone of an attacker's nameserver: what it answers is as its
// names say. A-B-C-D.nip.ZONE is that address.
const Attacker = "attack.example.net"

// attacks are the other names of its zone, without that zone: words of which an
// address stands for itself and =NAME for an alias; | parts what it answers to
// one question from what it answers to the next.
var attacks = map[string]string{
	"rebind":       Other + " | " + Office + " | 127.0.0.1",
	"inside":       Office,
	"both":         Office + " 127.0.0.1 " + Other,
	"mapped":       "::ffff:" + Office,
	"nat64":        "64:ff9b::192.168.77.10",
	"sixtofour":    "2002:c0a8:4d0a::1",
	"metadata":     "169.254.169.254",
	"gateway":      "198.18.0.1",
	"handle":       "198.18.1.0",
	"alias":        "=denied.example.org " + CDN,
	"alias-inside": "=inside." + Attacker + " " + Office,
	"loop":         "=loop." + Attacker,
	"address":      Other,
}

// attack is what the attacker's nameserver answers about a name for the nth time,
// and about the name of the vectors' hellos.
func attack(name string, n int) (words []string, ok bool) {
	if name == "a.example.com" {
		return []string{CDN}, true
	}
	sub, ok := strings.CutSuffix(name, "."+Attacker)
	if !ok {
		return nil, false
	}
	if digits, ok := strings.CutSuffix(sub, ".nip"); ok {
		return []string{strings.ReplaceAll(digits, "-", ".")}, true
	}
	if sub == "many" || strings.HasSuffix(sub, ".tunnel") {
		words = append(words, Other)
		for i := range 300 {
			if sub == "many" {
				words = append(words, fmt.Sprintf("45.67.%d.%d", 1+i/250, 1+i%250))
			}
		}
		return words, true
	}
	turns := strings.Split(attacks[sub], "|")
	return strings.Fields(turns[n%len(turns)]), attacks[sub] != ""
}

// attacked builds the attacker's answer to a question, nil if the name is not in
// its zone. Over UDP one that is too long is cut to nothing.
func (s *served) attacked(id uint16, q dnsmessage.Question, stream bool) []byte {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	key := name + " " + q.Type.String()
	s.mu.Lock()
	n := s.turns[key]
	s.turns[key]++
	s.mu.Unlock()
	words, ok := attack(name, n)
	if !ok {
		return nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
	at := q.Name
	for _, w := range words {
		h := dnsmessage.ResourceHeader{Name: at, Class: dnsmessage.ClassINET} // a lifetime of 0
		if to, ok := strings.CutPrefix(w, "="); ok {
			target := dnsmessage.MustNewName(to + ".")
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.CNAMEResource{CNAME: target}})
			at = target
		} else if a := netip.MustParseAddr(w); a.Is4() && q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		} else if a.Is6() && q.Type == dnsmessage.TypeAAAA {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	if len(m.Answers) > 20 && !stream {
		m.Answers, m.Truncated = nil, true
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// dnsTCP is the nameserver over TCP.
func (s *served) dnsTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for {
				var head [2]byte
				if _, err := io.ReadFull(c, head[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(head[:]))
				if _, err := io.ReadFull(c, q); err != nil {
					return
				}
				a := s.answer(q, true)
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}
		}()
	}
}

// ECHPort is where the CDN takes encrypted hellos; the configuration for them is
// the file ech in the world's directory.
const ECHPort = "4433"

func (s *served) listenECH(dir string, config *tls.Config) error {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	pub := key.PublicKey().Bytes()
	b := []byte{7, 0, 0x20, 0, byte(len(pub))} // RFC 9849, section 4: config_id, DHKEM(X25519)
	b = append(b, pub...)
	public := "allowed.example.org"
	b = append(b, 0, 4, 0, 1, 0, 1, 64, byte(len(public))) // HKDF-SHA256, AES-128-GCM; maximum_name_length
	b = append(append(b, public...), 0, 0)
	ech := append([]byte{0xfe, 0x0d, byte(len(b) >> 8), byte(len(b))}, b...)
	list := append(binary.BigEndian.AppendUint16(nil, uint16(len(ech))), ech...)
	if err := os.WriteFile(filepath.Join(dir, "ech"), list, 0o644); err != nil {
		return err
	}
	config = config.Clone()
	config.NextProtos = nil
	config.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{{Config: ech, PrivateKey: key.Bytes(), SendAsRetry: true}}
	l, err := s.accepting(CDN + ":" + ECHPort)
	if err != nil {
		return err
	}
	go greetTLS(tls.NewListener(l, config))
	return nil
}

// greetTLS says which name a client asked for.
func greetTLS(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			t := c.(*tls.Conn)
			if t.Handshake() == nil {
				fmt.Fprintf(t, "you asked for %s\n", t.ConnectionState().ServerName)
				io.Copy(io.Discard, t)
			}
		}()
	}
}
