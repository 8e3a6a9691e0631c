package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"runtime"
	"time"
)

// plant FILE: makes a private key, writes it and keeps it in memory, for a test that
// looks for keys: what it says is the key's bytes in hexadecimal.
func plant(file string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err.Error()
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err.Error()
	}
	scalar, err := key.Bytes()
	if err != nil {
		return err.Error()
	}
	f, err := os.Create(file)
	if err != nil {
		return err.Error()
	}
	pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	f.Sync()
	fmt.Printf("planted %x\n", scalar)
	time.Sleep(time.Hour)
	runtime.KeepAlive(key)
	return "end"
}
