# Runs in the guest, in the workspace, which has tree, a repository, and package, a lock
# file and npm's cache of what it names, and both in all.tar. Prints lines: PLACE WORK
# NANOSECONDS.
set -eu
export npm_config_cache=/var/tmp/cache npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
workspace=$PWD
mkdir /var/tmp/disk
tar -xf all.tar -C /var/tmp/disk
mv /var/tmp/disk/package/cache /var/tmp/cache
cp -a /var/tmp/disk/tree /var/tmp/disk/package private

timed() { # PLACE WORK COMMAND…
  place=$1 work=$2 began=$(date +%s%N); shift 2
  "$@" >/dev/null
  echo "$place $work $(($(date +%s%N) - began))"
}
write() { dd if=/dev/zero of=big bs=1M count=100 conv=fsync status=none; }
install() { npm ci --offline --ignore-scripts --loglevel=error; }
again() { echo 2 >/proc/sys/vm/drop_caches; } # what the kernel knows of files, as after a while

# The first one has its code translated, and npm's cache read, for all that follow.
(cd /var/tmp/disk/package && install >/dev/null && rm -r node_modules)

for place in share disk private; do
  case $place in share) dir=$workspace ;; disk) dir=/var/tmp/disk ;; private) dir=$workspace/private ;; esac
  cd "$dir/tree"
  again
  timed $place status-first git status --porcelain
  for i in 1 2 3 4 5; do timed $place status git status --porcelain; done
  for i in 1 2 3; do timed $place rg rg -c needle .; done
  for i in 1 2 3; do
    timed $place write write
    timed $place read cat big
  done
  rm big
  cd "$dir/package"
  for i in 1 2 3; do
    timed $place npm-ci install
    timed $place remove rm -r node_modules
  done
done
