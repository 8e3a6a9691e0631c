//go:build linux

package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/session"
	"sb/sb-vm/guest/jks"

	"golang.org/x/sys/unix"
)

// prepare makes the guest ready for what the host will run in it. Nothing of it is
// secret.
func prepare(p session.Prepare, spec string) error {
	if p.Trust != "" {
		if err := trust([]byte(p.Trust)); err != nil {
			return fmt.Errorf("trust a certificate: %w", err)
		}
	}
	u, err := findUser(spec)
	if err != nil {
		return err
	}
	if p.MakeUser != "" {
		if err := makeUser(p.MakeUser, u.uid); err != nil {
			return err
		}
		if u, err = findUser(spec); err != nil { // he has a home now
			return err
		}
	}
	for path, target := range p.Links {
		if err := os.Symlink(target, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for path, text := range p.Files {
		if err := writeOwn(u, path, text); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// bundles are where distributions keep the certificates that are trusted, in one
// file: Debian and Alpine, Fedora (its old path and its own), SUSE, others.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// anchors are where the tools that make a bundle anew look for further ones.
var anchors = []string{"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors", "/etc/pki/trust/anchors"}

// trust adds a certificate to those that the guest trusts already: programs have
// the system's file, or a variable that names one of ours.
func trust(certificate []byte) error {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return errors.New("it is none")
	}
	before, _ := os.ReadFile(session.TrustedFile) // of a broker that is no more
	if err := replace(session.TrustedFile, certificate); err != nil {
		return err
	}
	first := session.TrustedFile
	for _, path := range bundles {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		if err := exchange(real, before, certificate); err != nil {
			return err
		}
		if first == session.TrustedFile {
			first = real
		}
	}
	os.Remove(session.BundleFile)
	if err := os.Symlink(first, session.BundleFile); err != nil {
		return err
	}
	for _, dir := range anchors {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			if err := replace(dir+"/sb.crt", certificate); err != nil {
				return err
			}
		}
	}
	return trustInJava("/", first, block.Bytes)
}

// exchange adds a certificate to the end of a file, and takes the one before it away.
func exchange(path string, before, certificate []byte) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, old := range [][]byte{before, certificate} {
		if len(old) > 0 {
			text = bytes.ReplaceAll(text, old, nil)
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return replace(path, append(text, certificate...))
}

// replace writes a file that everybody may read, in full or not at all.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".sb-new", text, 0o444); err != nil {
		return err
	}
	return os.Rename(path+".sb-new", path)
}

// javaStores are where Java keeps the certificates that it trusts: distributions in one
// file, others in one of each Java.
var javaStores = []string{
	"/etc/ssl/certs/java/cacerts",
	"/etc/pki/ca-trust/extracted/java/cacerts",
}

// javaHomes are where a Java is: as distributions have it, as images do that are made
// for it, and as a user installs one.
var javaHomes = []string{
	"/usr/lib/jvm/*", "/usr/lib64/jvm/*",
	"/opt/*", "/opt/java/*", "/usr/java/*", "/usr/local/openjdk-*",
	"/usr/local/sdkman/candidates/java/*", "/root/.sdkman/candidates/java/*", "/home/*/.sdkman/candidates/java/*",
}

// trustInJava adds the certificate to the stores of Java, which has its own. A
// store in a form that is not known is made anew of the system's certificates. root is
// "/" but in tests.
func trustInJava(root, bundle string, certificate []byte) error {
	patterns := slices.Clone(javaStores)
	for _, home := range javaHomes {
		patterns = append(patterns, home+"/lib/security/cacerts", home+"/jre/lib/security/cacerts")
	}
	done := map[string]bool{}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range found {
			real, err := filepath.EvalSymlinks(path)
			if err != nil || done[real] {
				continue
			}
			done[real] = true
			if st, err := os.Stat(real); err != nil || !st.Mode().IsRegular() {
				continue
			}
			if err := addToJava(real, bundle, certificate); err != nil {
				return fmt.Errorf("%s: %w", real, err)
			}
		}
	}
	return nil
}

func addToJava(path, bundle string, certificate []byte) error {
	store, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	added, err := jks.Add(store, "sb", certificate)
	if errors.Is(err, jks.ErrForm) {
		text, _ := os.ReadFile(bundle)
		added, err = jks.New(text)
	}
	if err != nil {
		return err
	}
	return replace(path, added)
}

// writeOwn writes a file of the user's, where there is none. Directories that it
// needs are the user's too. One that is not in his home is root's, for everybody.
func writeOwn(u user, path, text string) error {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(u.home, rest)
	} else if !strings.HasPrefix(path, u.home+"/") {
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
		return replace(path, []byte(text))
	}
	if err := makeOwnDir(u, filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Chown(int(u.uid), int(u.gid)), f.Close())
}

func makeOwnDir(u user, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeOwnDir(u, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Lchown(dir, int(u.uid), int(u.gid))
}
