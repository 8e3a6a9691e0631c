#!/bin/sh
# by-hand.sh IMAGE ALLOWED DENIED: a sandbox with no sb-run in charge
set -eu
dir=$(mktemp -d) && trap 'rm -r "$dir"' EXIT
sb-image path "$1" >/dev/null 2>&1 || sb-image pull "$1"
sb-image disk "$dir/disk"
cat >"$dir/sandbox.toml" <<END
rules.allow = ["$2"]
machine.kernel = "$(sb-image kernel show)"
machine.base = "$(sb-image path "$1")"
machine.disk = "$dir/disk"
END
cd "$dir" && sb-run pair frames=dgram dns=stream guest=stream leash=stream -- sh -euc '
sb-dns  --manifest sandbox.toml --dns=$dns_a --leash=$leash_a &
sb-gate --manifest sandbox.toml --frames=$frames_a --dns=$dns_b --leash=$leash_a >audit.log &
sb-vm   --manifest sandbox.toml --frames=$frames_b --guest=$guest_a --leash=$leash_a &
sb-run attach --guest=$guest_b -- sh -c "curl -sS http://${1%@*}/; curl -sS http://$2/ || true"
' sh "$2" "$3"
grep ' allow tcp ' audit.log
grep ' deny dns ' audit.log
