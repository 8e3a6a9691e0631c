//go:build linux

package main

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"sb/sb-vm/guest/jks"
)

// TestJavaStores: each Java's store gets the certificate, wherever that Java is; one
// behind a link once, one of another form (Java's own since 18) with all that the
// system trusts, and what is no Java's store nothing.
func TestJavaStores(t *testing.T) {
	root := t.TempDir()
	write := func(path string, text []byte) string {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	encode := func(der string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)})
	}
	others, ours := []byte("the DER of another"), []byte("the DER of ours")
	store, err := jks.New(encode(string(others)))
	if err != nil {
		t.Fatal(err)
	}
	var stores []string
	for _, path := range []string{
		"etc/ssl/certs/java/cacerts",
		"etc/pki/ca-trust/extracted/java/cacerts",
		"usr/lib/jvm/java-21/lib/security/cacerts",
		"usr/lib/jvm/java-8/jre/lib/security/cacerts",
		"usr/lib64/jvm/java-17/lib/security/cacerts",
		"opt/java/openjdk/lib/security/cacerts",
		"opt/graalvm/lib/security/cacerts",
		"usr/java/openjdk-17/lib/security/cacerts",
		"usr/local/openjdk-8/jre/lib/security/cacerts",
		"usr/local/sdkman/candidates/java/current/lib/security/cacerts",
		"home/me/.sdkman/candidates/java/21/lib/security/cacerts",
	} {
		stores = append(stores, write(path, store))
	}
	stores = append(stores, write("opt/jdk-21/lib/security/cacerts", []byte("PKCS #12, say")))
	if err := os.MkdirAll(filepath.Join(root, "usr/lib/jvm/default/lib/security"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(stores[0], filepath.Join(root, "usr/lib/jvm/default/lib/security/cacerts")); err != nil {
		t.Fatal(err)
	}
	elsewhere := write("srv/lib/security/cacerts", store)
	bundle := write("bundle", append(encode(string(others)), encode(string(ours))...))
	for range 2 {
		if err := trustInJava(root, bundle, ours); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range stores {
		text, err := os.ReadFile(path)
		if err != nil || bytes.Count(text, ours) != 1 || bytes.Count(text, others) != 1 {
			t.Errorf("%s has ours %d times, the other %d times (%v)", path, bytes.Count(text, ours), bytes.Count(text, others), err)
		}
	}
	if text, _ := os.ReadFile(elsewhere); !bytes.Equal(text, store) {
		t.Errorf("%s was changed", elsewhere)
	}
}
