#!/usr/bin/env bash
# run.sh BUILD_DIR COMPILER: installs BUILD_DIR, then has another user build and run tests/install/downstream against the
# copy (check.sh), where neither the clone, nor the cache of setup.sh, nor the system's datasets can be seen.
set -euo pipefail
build=$1
compiler=$2
here=$(cd "$(dirname "$0")" && pwd)
clone=$(cd "$here/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trireme
scratch=$(mktemp -d -p "${TMPDIR:-/var/tmp}")  # 700 MB
trap 'rm -rf "$scratch"' EXIT

DESTDIR='' cmake --install "$build" --prefix "$scratch/installed" >/dev/null
cp -r "$here/downstream" "$here/check.sh" "$scratch"
chmod -R a+rX "$scratch/downstream" "$scratch/check.sh"

namespace=(unshare --mount)
user=()
if [ "$(id -u)" = 0 ]; then
  nobody=65534
  chown -R $nobody "$scratch/downstream"
  chown $nobody "$scratch" "$scratch/installed"  # check.sh moves it
  user=(setpriv --reuid=$nobody --regid=$nobody --clear-groups)
else
  namespace+=(--user --map-root-user)
fi
cd "$scratch"
# shellcheck disable=SC2016
HOME=$scratch "${namespace[@]}" sh -ec '
  for folder in "$1" "$2" /usr/share/datasets; do
    if [ -d "$folder" ]; then mount -t tmpfs none "$folder"; fi
  done
  shift 2
  exec "$@"' sh "$cache" "$clone" "${user[@]}" "$scratch/check.sh" "$compiler"
