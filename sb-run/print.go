package main

import (
	"fmt"
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
		text = script(p, string(text))
	}
	_, err = w.Write(text)
	return err
}

// script is the run without sb-run in charge: the same tools, joined by a shell.
func script(p *plan, text string) []byte {
	var b strings.Builder
	b.WriteString(`#!/bin/sh
# A sandbox by hand, made by sb-run --print=sh. Its audit log is left in $dir.
set -eu
: "${dir:=$(mktemp -d)}"
`)
	disk := "disk = \"\""
	if p.ephemeral {
		fmt.Fprintf(&b, "sb-image disk \"$dir/disk\" --size %s\n", p.diskSize)
		b.WriteString("trap 'rm -f \"$dir/disk\"' EXIT\n")
	}
	b.WriteString("cat >\"$dir/sandbox.toml\" <<'END'\n" + text + "END\n")
	if p.ephemeral {
		b.WriteString("sed -i.bak \"s|^" + disk + "$|disk = \\\"$dir/disk\\\"|\" \"$dir/sandbox.toml\" && rm \"$dir/sandbox.toml.bak\"\n")
	}
	b.WriteString(`sb-run pair frames=dgram dns=stream guest=stream leash=stream -- sh -euc '
m=$1/sandbox.toml
sb-dns --manifest "$m" --dns=$dns_a --leash=$leash_a &
sb-gate --manifest "$m" --frames=$frames_a --dns=$dns_b --leash=$leash_a >>"$1/audit.log" &
sb-vm --manifest "$m" --frames=$frames_b --guest=$guest_a --leash=$leash_a &
sb-run attach --manifest "$m" --guest=$guest_b
' sh "$dir"
`)
	return []byte(b.String())
}
