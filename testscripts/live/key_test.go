package live

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeyStaysOut: the certificate of the sandbox's CA is in the guest, where nobody
// but root can change it; its private key is nowhere in the guest's memory, in which
// every process and every cached file is, nor on its disk, in any form. The key is
// known from the broker's memory, where the same search finds it, as it finds one that
// was planted in the guest.
func TestKeyStaysOut(t *testing.T) {
	t.Parallel()
	claim(t, "45", "46")
	env, state := homes(t)
	writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), secretConfig())
	s := startIn(t, box{script: `
curl -sS --max-time 20 -H "Authorization: Bearer $MINE" https://keys.example.org/seen
echo "== modes"; stat -c '%a %U %n' /etc/sb /etc/sb/ca.crt /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/sb.crt
echo "== as nobody"
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$@" 2>&1; }
for f in /etc/sb/ca.crt /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/sb.crt; do as_nobody "echo >>$f"; as_nobody "rm -f $f"; done
as_nobody 'echo >>/tmp/own && rm /tmp/own && echo control'
echo "== certificate"; cat /etc/sb/ca.crt; echo "== end"
probe plant /root/planted.pem & echo up; wait`}, append(env, "SB_TEST_SECRET="+aSecret), state)
	s.until("a planted key", func() bool { return planted.MatchString(s.out.String()) })
	r := &result{t: t, stdout: s.out.String(), stderr: s.errs.String()}
	if got := r.section("modes"); got != "755 root /etc/sb\n444 root /etc/sb/ca.crt\n444 root /etc/ssl/certs/ca-certificates.crt\n444 root /usr/local/share/ca-certificates/sb.crt" {
		t.Errorf("modes:\n%s", got)
	}
	if got := r.section("as nobody"); strings.Count(got, "ermission denied") != 6 || !strings.HasSuffix(got, "\ncontrol") {
		t.Errorf("nobody changes them:\n%s", got)
	}
	block, _ := pem.Decode([]byte(r.section("certificate")))
	if block == nil {
		t.Fatalf("no certificate: %s", r.section("certificate"))
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	broker := memory(t, s.pidOf("sb-broker"))
	key := keyOf(broker, ca.PublicKey.(*ecdsa.PublicKey))
	if key == nil {
		t.Fatal("control: the CA's key is not found in the broker's memory")
	}
	own, err := hex.DecodeString(planted.FindStringSubmatch(s.out.String())[1])
	if err != nil {
		t.Fatal(err)
	}
	ownKey, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), own)
	if err != nil {
		t.Fatal(err)
	}
	qemu := s.pidOf("qemu-system-x86_64")
	guest, disk := memory(t, qemu), diskOf(t, qemu)
	public := keysIn([][]byte{imageFile(t)}) // libraries have keys to test themselves with
	for _, c := range []struct {
		where string
		in    [][]byte
		want  []string // forms of the planted key
	}{{"memory", guest, []string{"bytes", "base64"}}, {"disk", disk, []string{"base64"}}} {
		if found := formsIn(c.in, key); len(found) > 0 {
			t.Errorf("the CA's key is in the guest's %s: %v", c.where, found)
		}
		found := formsIn(c.in, own)
		for _, form := range c.want {
			if !slices.Contains(found, form) {
				t.Errorf("control: the planted key is not found as %s in the guest's %s, but as %v", form, c.where, found)
			}
		}
		all := slices.DeleteFunc(keysIn(c.in), func(id string) bool { return slices.Contains(public, id) })
		t.Logf("%s: %d KiB", c.where, size(c.in)>>10)
		if !slices.Equal(all, []string{idOf(ownKey)}) {
			t.Errorf("private keys in the guest's %s: %v, want the planted one alone, %s", c.where, all, idOf(ownKey))
		}
	}
}

var planted = regexp.MustCompile(`planted ([0-9a-f]{64})\n`)

func size(parts [][]byte) (n int) {
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// memory is what a process can write to of its memory; of QEMU's the guest's is a part.
func memory(t *testing.T, pid int) (parts [][]byte) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n != 3 || !strings.HasPrefix(mode, "rw") {
			continue
		}
		part := make([]byte, to-from)
		n, _ := io.ReadFull(io.NewSectionReader(f, from, to-from), part) // a device's part cannot be read
		parts = append(parts, part[:n])
	}
	return parts
}

// imageFile is the file system that the machine has beneath its disk.
func imageFile(t *testing.T) []byte {
	t.Helper()
	path, err := command(filepath.Join(os.Getenv(binVar), "sb-image"), "path", imageRef)
	if err != nil {
		t.Fatalf("%v: %s", err, path)
	}
	text, err := os.ReadFile(strings.TrimSpace(path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// diskOf is what was written on the machine's disk.
func diskOf(t *testing.T, qemu int) (parts [][]byte) {
	t.Helper()
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", qemu))
	for _, fd := range fds {
		if link, _ := os.Readlink(fd); !strings.Contains(link, "/disk") || !strings.Contains(link, "(deleted)") {
			continue
		}
		f, err := os.Open(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for at := int64(0); ; {
			from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
			if err != nil {
				break // no more
			}
			to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
			if err != nil {
				t.Fatal(err)
			}
			part := make([]byte, to-from)
			if _, err := f.ReadAt(part, from); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			parts, at = append(parts, part), to
		}
	}
	if size(parts) == 0 {
		t.Fatal("no disk found")
	}
	return parts
}

// keyOf finds the private key of a public one on P-256 in a Go program's memory, where
// it is 32 bytes at a multiple of 8, as bytes or as words of a big.Int.
func keyOf(parts [][]byte, public *ecdsa.PublicKey) []byte {
	want, err := public.Bytes()
	if err != nil {
		return nil
	}
	tried := map[[32]byte]bool{}
	for _, p := range parts {
		for i := 0; i+32 <= len(p); i += 8 {
			candidate := [32]byte(p[i : i+32])
			if !random(candidate) || tried[candidate] {
				continue
			}
			tried[candidate] = true
			for _, scalar := range [][]byte{candidate[:], reversed(candidate[:])} {
				if k, err := ecdh.P256().NewPrivateKey(scalar); err == nil && bytes.Equal(k.PublicKey().Bytes(), want) {
					return scalar
				}
			}
		}
	}
	return nil
}

// random tells bytes that may be a key from addresses, small numbers and text. It is
// wrong about one key in a million.
func random(b [32]byte) bool {
	high := 0
	for i := 0; i < 32; i += 8 {
		if b[i+7] == 0 && b[i+6] == 0 && b[i+5] == 0 {
			return false
		}
	}
	values := map[byte]bool{}
	for _, c := range b {
		values[c] = true
		high += int(c >> 7)
	}
	return high > 2 && len(values) > 16
}

func reversed(b []byte) []byte {
	r := slices.Clone(b)
	slices.Reverse(r)
	return r
}

// formsIn says in which forms a key is there: its bytes (so it is in DER), as a
// number's words, in hexadecimal, and in base64 at each place of a line of PEM.
func formsIn(parts [][]byte, key []byte) (found []string) {
	forms := []struct {
		name string
		text []byte
	}{{"bytes", key}, {"words", reversed(key)}, {"hex", []byte(hex.EncodeToString(key))}, {"HEX", []byte(strings.ToUpper(hex.EncodeToString(key)))}}
	for before := range 3 {
		// The twelve bytes that stand in one line wherever the key begins.
		text := base64.StdEncoding.EncodeToString(append(make([]byte, before), key[:12]...))
		forms = append(forms, struct {
			name string
			text []byte
		}{"base64", []byte(text[(before*8+5)/6 : (before+12)*8/6])})
	}
	for _, f := range forms {
		if slices.ContainsFunc(parts, func(p []byte) bool { return bytes.Contains(p, f.text) }) {
			found = append(found, f.name)
		}
	}
	return found
}

// keysIn finds private keys by their PEM, and those on P-256 by their DER, each once, as
// idOf has them.
func keysIn(parts [][]byte) (ids []string) {
	add := func(key any, err error) {
		if k, ok := key.(crypto.Signer); ok && err == nil && !slices.Contains(ids, idOf(k)) {
			ids = append(ids, idOf(k))
		}
	}
	for _, p := range parts {
		for _, at := range regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`).FindAllIndex(p, -1) {
			if block, _ := pem.Decode(p[at[0]:min(at[0]+8192, len(p))]); block != nil {
				add(x509.ParsePKCS8PrivateKey(block.Bytes))
				add(x509.ParseECPrivateKey(block.Bytes))
				add(x509.ParsePKCS1PrivateKey(block.Bytes))
			}
		}
		for at := 0; ; at++ {
			next := bytes.Index(p[at:], []byte("\x02\x01\x01\x04\x20")) // RFC 5915: a version, and 32 bytes
			if next < 0 {
				break
			}
			at += next
			add(derKey(p[at:min(at+128, len(p))]))
		}
	}
	return ids
}

// derKey is the key at the beginning of what follows, if its public key is there too.
func derKey(p []byte) (*ecdsa.PrivateKey, error) {
	if len(p) < 37 {
		return nil, io.ErrUnexpectedEOF
	}
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), p[5:37])
	if err != nil {
		return nil, err
	}
	public, err := k.PublicKey.Bytes()
	if err == nil && !bytes.Contains(p, public) {
		err = errors.New("another's public key")
	}
	return k, err
}

// idOf tells keys apart.
func idOf(key crypto.Signer) string {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.8x", sha256.Sum256(der))
}
