# Clones the repository at $SB_SOURCE into $SB_DIR, in the guest and as the command's user:
# all branches, tags and what is known of origin's. Each line on stdout is a note.
set -eu
[ ! -e "$SB_DIR/.git" ] || exit 0
command -v git >/dev/null || { echo "there is no git in the image, and --clone needs it" >&2; exit 127; }
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
export GIT_CONFIG_GLOBAL=$here/config GIT_LFS_SKIP_SMUDGE=1 GIT_TERMINAL_PROMPT=0
# What is shared is the host's, and not this user's.
printf '%s\n' '[safe]' 'directory = *' '[protocol "file"]' 'allow = always' '[uploadpack]' 'allowAnySHA1InWant = true' >"$GIT_CONFIG_GLOBAL"
format=
[ "$SB_FORMAT" = sha1 ] || format=--object-format=$SB_FORMAT

# mirror FROM TO has the branches and objects of a git directory without its
# configuration, which may name a tree that is not here.
mirror() {
	git init -q --bare $format "$2"
	printf '%s\n' "$1/objects" >"$2/objects/info/alternates"
	cp -r "$1/refs" "$2/"
	for file in HEAD packed-refs shallow; do
		[ ! -f "$1/$file" ] || cp "$1/$file" "$2/"
	done
}

cd "$SB_DIR"
git init -q $format
[ -z "$SB_BRANCH" ] || git symbolic-ref HEAD "refs/heads/$SB_BRANCH"
[ -z "$SB_ORIGIN" ] || git config remote.origin.url "$SB_ORIGIN"
[ -z "$SB_ORIGIN" ] || git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'
[ -z "$SB_NAME" ] || git config user.name "$SB_NAME"
[ -z "$SB_EMAIL" ] || git config user.email "$SB_EMAIL"

if [ -n "$SB_COPY" ]; then
	(cd "$SB_SOURCE" && tar --exclude=./.git -cf - .) | tar -xf -
else
	mirror "$SB_SOURCE" "$here/source"
	git fetch -q --no-tags --update-head-ok --update-shallow --no-recurse-submodules "file://$here/source" \
		'+refs/heads/*:refs/heads/*' '+refs/tags/*:refs/tags/*' '+refs/remotes/origin/*:refs/remotes/origin/*'
	rm -f .git/FETCH_HEAD
	if [ -z "$SB_BRANCH" ]; then
		git fetch -q --no-tags --no-recurse-submodules "file://$here/source" "$SB_COMMIT"
		git checkout -q --detach "$SB_COMMIT"
	elif git rev-parse -q --verify HEAD >/dev/null; then
		git reset -q --hard
		if git rev-parse -q --verify "refs/remotes/origin/$SB_BRANCH" >/dev/null; then
			git config "branch.$SB_BRANCH.remote" origin
			git config "branch.$SB_BRANCH.merge" "refs/heads/$SB_BRANCH"
		fi
	fi
fi

# Submodules whose objects are there are checked out from them.
if [ -f .gitmodules ] && [ -z "$SB_COPY" ]; then
	git config -f .gitmodules --get-regexp '^submodule\..*\.path$' | while read -r key path; do
		name=${key#submodule.} name=${name%.path}
		if [ -d "$SB_SOURCE/modules/$name/objects" ]; then
			rm -rf "$here/module"
			mirror "$SB_SOURCE/modules/$name" "$here/module"
			git config "submodule.$name.url" "file://$here/module"
			git submodule --quiet update --init -- "$path" && git submodule --quiet sync -- "$path" ||
				echo "the submodule $path could not be checked out"
		else
			echo "the submodule $path is empty: its objects are not in the repository (git submodule update --init fetches it, where the rules allow)"
		fi
	done
fi
if [ -f .gitattributes ] && grep -q 'filter=lfs' .gitattributes; then
	echo "files of git-lfs are pointers in the clone (git lfs pull fetches them, where the rules allow)"
fi

if [ -n "$SB_FILE" ]; then
	if [ -e "$SB_FILE" ] || [ -L "$SB_FILE" ]; then
		echo "the repository has its own $SB_FILE, which stays: the profile's instructions are not written"
	else
		mkdir -p "$(dirname "$SB_FILE")" .git/info
		printf '%s' "$SB_TEXT" >"$SB_FILE"
		printf '/%s\n' "$SB_FILE" >>.git/info/exclude
	fi
fi
