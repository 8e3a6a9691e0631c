package main

import (
	"io"
	"strings"
)

// printPlan writes the sandbox as a manifest or as a script, and runs nothing.
func printPlan(w io.Writer, p *plan, o *options) error {
	text, err := p.m.Encode()
	if err != nil {
		return err
	}
	if o.print == "sh" {
		if text, err = script(p, o); err != nil {
			return err
		}
	}
	_, err = w.Write(text)
	return err
}

// diskHere stands in the manifest for a disk that the script makes itself.
const diskHere = "/the/disk/of/this/script"

// script is the run without sb-run in charge: the same tools, joined by a shell.
func script(p *plan, o *options) ([]byte, error) {
	m := *p.m
	var make, tty string
	if p.ephemeral {
		m.Machine.Disk = diskHere
		make = "sb-image disk \"$dir/disk\" --size " + m.Machine.DiskSize.String() + "\ntrap 'rm -f \"$dir/disk\"' EXIT\n"
	}
	switch {
	case o.tty:
		tty = " --tty"
	case o.noTTY:
		tty = " --no-tty"
	}
	if o.terminal != "" {
		tty += " --terminal=" + o.terminal
	}
	pairs, broker, gate, ca := "", "", "", ""
	if secrets := secretNames(&m); len(secrets) > 0 {
		pairs, gate, ca = " broker=dgram secrets=stream", " --broker=$broker_b", ` --ca "$1/ca.pem"`
		broker = "mkfifo -m 600 \"$1/ca.pem\"\n" +
			"sb-broker keep " + strings.Join(secrets, " ") + " --secrets=$secrets_a --leash=$leash_a &\n" +
			"sb-broker --manifest \"$m\" --broker=$broker_a --secrets=$secrets_b --leash=$leash_a --ca-out=1" + rootsFlags(p.roots) + " >\"$1/ca.pem\" &\n"
	}
	text, err := m.Encode()
	if err != nil {
		return nil, err
	}
	// The manifest stands in a here-document, where these three act.
	words := strings.NewReplacer(`\`, `\\`, "$", `\$`, "`", "\\`").Replace(string(text))
	words = strings.Replace(words, diskHere, "$dir/disk", 1)
	return []byte(`#!/bin/sh
# A sandbox by hand, made by sb-run --print=sh. Its audit log is left in $dir.
set -eu
: "${dir:=$(mktemp -d)}"
` + make + `cat >"$dir/sandbox.toml" <<END
` + words + `END
sb-run pair frames=dgram dns=stream guest=stream leash=stream` + pairs + ` -- sh -euc '
m=$1/sandbox.toml
sb-dns --manifest "$m" --dns=$dns_a --leash=$leash_a &
` + broker + `sb-gate --manifest "$m" --frames=$frames_a --dns=$dns_b` + gate + ` --leash=$leash_a >>"$1/audit.log" &
sb-vm --manifest "$m" --frames=$frames_b --guest=$guest_a --leash=$leash_a &
sb-run attach --manifest "$m" --guest=$guest_b` + ca + tty + `
' sh "$dir" || status=$?
echo "its audit log: $dir/audit.log" >&2
exit ${status:-0}
`), nil
}

// rootsFlags are the broker's flags for files of authorities. They stand within
// single quotes of the script, of which each is written as '\”.
func rootsFlags(files []string) (flags string) {
	for _, file := range files {
		quoted := "'" + strings.ReplaceAll(homePath(file), "'", `'\''`) + "'"
		flags += " --roots " + strings.ReplaceAll(quoted, "'", `'\''`)
	}
	return flags
}
