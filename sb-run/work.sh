# Before the host takes the branches of the clone at $SB_DIR: what is on none becomes one.
set -eu
cd "$SB_DIR"
export GIT_LITERAL_PATHSPECS=1 GIT_TERMINAL_PROMPT=0
if ! git symbolic-ref -q HEAD >/dev/null && git rev-parse -q --verify HEAD >/dev/null &&
	[ "$(git rev-parse HEAD)" != "$SB_COMMIT" ]; then
	git update-ref refs/heads/sb-detached HEAD
fi
[ -n "$(git status --porcelain --ignore-submodules=all)" ] || exit 0
export GIT_INDEX_FILE=$(git rev-parse --absolute-git-dir)/sb-index
trap 'rm -f "$GIT_INDEX_FILE"' EXIT
parent=
if git rev-parse -q --verify HEAD >/dev/null; then
	git read-tree HEAD
	parent="-p HEAD"
fi
git add -A
for role in AUTHOR COMMITTER; do
	export "GIT_${role}_NAME=sb" "GIT_${role}_EMAIL=sb@localhost"
done
git update-ref refs/heads/sb-uncommitted "$(git commit-tree $parent -m 'what was not committed when the sandbox ended' "$(git write-tree)")"
