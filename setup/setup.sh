#!/usr/bin/env bash
# Installs what Trireme needs; does nothing, quickly, when all is there.
#
#   setup.sh build      compiler, libraries, libtorch, OpenVINO          (about 1.5 GB; 6 GB with a GPU)
#   setup.sh package    also what makes packages
#   setup.sh wheel      what makes the launcher's wheel: no libtorch, no OpenVINO
#   setup.sh test       also etcd, sshd, network tools, a bare Debian in a folder (0.3 GB)
#   setup.sh sanitize   also clang and its tools
#   setup.sh interop    also the Python peers: torch and paddlepaddle    (about 6 GB), and Triton's HTTP client
#   setup.sh where libtorch|openvino|debian|peers|client      prints the folder; installs nothing
#
# Packages come from apt (setup/packages-*.txt), wheels from the Python package index (setup/versions.lock). Wheels go
# into ${XDG_CACHE_HOME:-~/.cache}/trireme, shared by all clones; the user's Python is never touched.
#
#   TRIREME_TORCH_DIR=DIR        use this libtorch (an unpacked zip, or a Python's torch folder), download none
#   TRIREME_LIBTORCH=cuda|cpu    fetch libtorch with or without its CUDA part; default: with, where there is a GPU
#   TRIREME_OPENVINO_DIR=DIR     use this OpenVINO (the folder with cmake/, include/ and libs/), download none
#   TRIREME_SKIP_PACKAGES=1      do not look at apt: the packages' equivalents are there
#   PYTHON=python3               the Python that installs the wheels
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trireme
python=${PYTHON:-python3}

say() { echo "setup: $*" >&2; }
die() { say "$@"; exit 1; }

# --- progress -------------------------------------------------------------------------------------------------------

# Until its input ends: one live line on a terminal, elsewhere a line every 20 s.
tell_progress() {  # tell_progress WHAT FOLDER
  local start=$SECONDS pause=20 before='' after=$'\n'
  if [ -t 2 ]; then pause=1 before=$'\r\e[K' after=''; fi
  while read -rt $pause || [ $? -gt 128 ]; do  # 128 and more: time is up
    printf '%ssetup: %s: %s MB after %d s%s' "$before" "$1" "$(du -sm "$2" 2>/dev/null | cut -f 1)" $((SECONDS - start)) \
      "$after" >&2
  done
  printf %s "$before" >&2
}

# What runs in between must not hold descriptor 8, by whose end the other side knows that all is done.
begin_progress() {  # begin_progress WHAT FOLDER
  exec 8> >(tell_progress "$@" 9>&-)
  progress=$!
}
end_progress() { exec 8>&-; wait $progress; }

# --- packages -------------------------------------------------------------------------------------------------------

# The package names of lists: `wanted build test`. Those with a ? are installed where apt has them.
listed() { for list in "$@"; do sed 's/#.*//' "$here/packages-$list.txt"; done | xargs -n 1; }
wanted() { listed "$@" | grep -v '?$'; }
welcome() { listed "$@" | sed -n 's/?$//p'; }

not_installed() {
  comm -23 <(sort) <(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 2>/dev/null | sed -n 's/^ii *//p' | sort)
}

known_to_apt() { for name in "$@"; do apt-cache show "$name" >/dev/null 2>&1 && echo "$name"; done || true; }

apt_install() {
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then  # tells package scripts to start no service; there only while we install
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap "rm -f $policy" EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  begin_progress packages /var/cache/apt/archives
  apt-get -qq update 8>&-
  apt-get -qq -y -o DPkg::Lock::Timeout=600 install --no-install-recommends "$@" $(known_to_apt $optional) >/dev/null 8>&-
  end_progress
  if [ "$(trap -p EXIT)" ]; then rm -f "$policy"; trap - EXIT; fi
}

packages() {
  [ -z "${TRIREME_SKIP_PACKAGES:-}" ] || return 0
  command -v apt-get >/dev/null ||
    die "no apt here. Install the equivalents of: $(wanted "$@" | xargs)"$'\n'"       then run again with TRIREME_SKIP_PACKAGES=1"
  local names optional
  names=$(wanted "$@" | not_installed | xargs)
  optional=$(welcome "$@" | not_installed | xargs)
  # shellcheck disable=SC2086
  [ -n "$names" ] || { [ "$(id -u)" = 0 ] && [ -n "$(known_to_apt $optional)" ]; } || return 0
  [ "$(id -u)" = 0 ] || die "packages are missing and this is not root. Run, then try again:"$'\n'"  sudo apt-get install --no-install-recommends $names"
  say "installing packages: $names $optional"
  # shellcheck disable=SC2086
  apt_install $names
}

# --- wheels ---------------------------------------------------------------------------------------------------------

# The requirements of one section of the lock.
section() { sed -n "/^# \[$1\]/,/^$/{/^[^#]/p}" "$here/versions.lock"; }

# A name that changes when the section's pins do.
section_id() {
  local version digest
  version=$(section "$1" | sed -n 's/^\(torch\|openvino\|tritonclient\)==\([^ ]*\).*/\2/p' | tail -n 1)
  digest=$(section "$1" | sha256sum)
  echo "$1-$version-${digest:0:8}"
}

# A Python the peers have wheels for.
peers_python() {
  local candidate
  for candidate in "$python" python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "the Python peers need Python 3.11, 3.12 or 3.13; set PYTHON to one"
}

# With a GPU libtorch's whole CUDA part is needed, else none of it. An image is built where there is no GPU.
libtorch_section() {
  case "${TRIREME_LIBTORCH:-}" in
    cuda) echo cuda ;;
    cpu) echo libtorch ;;
    "") if [ -e /dev/nvidiactl ]; then echo cuda; else echo libtorch; fi ;;
    *) die "TRIREME_LIBTORCH is '$TRIREME_LIBTORCH'; it must be cuda or cpu" ;;
  esac
}

where() {
  case "$1" in
    libtorch) echo "${TRIREME_TORCH_DIR:-$cache/$(section_id "$(libtorch_section)")}" ;;
    openvino) echo "${TRIREME_OPENVINO_DIR:-$cache/$(section_id openvino)/openvino}" ;;
    debian) echo "$cache/debian-bookworm" ;;
    peers) echo "$cache/$(section_id peers)-$("$(peers_python)" -c 'import sys; print("py%d.%d" % sys.version_info[:2])')" ;;
    client) echo "$cache/$(section_id client)-$("$(peers_python)" -c 'import sys; print("py%d.%d" % sys.version_info[:2])')" ;;
    *) die "unknown: where $1 (libtorch, openvino, debian, peers, client)" ;;
  esac
}

pip_install() {  # pip_install VENV SECTION [pip options]
  local venv=$1 name=$2
  shift 2
  mkdir -p "$venv/tmp"
  TMPDIR=$venv/tmp "$venv/bin/python" -m pip install --quiet --no-cache-dir --no-compile --no-deps --only-binary :all: \
    --require-hashes -r <(section "$name") "$@" >&2
  rmdir "$venv/tmp"
}

# C++ needs the headers and libraries only, so any Python can unpack the same wheels: no `import torch` here.
unpack() {  # unpack DIR SECTION
  "$python" -m venv "$1/pip"
  pip_install "$1/pip" "$2" --target "$1" --python-version 3.11
  rm -rf "$1/pip"
}

fetch_libtorch() { unpack "$1" "$(libtorch_section)"; }
fetch_openvino() { unpack "$1" openvino; }

fetch_peers() {
  "$(peers_python)" -m venv "$1"
  pip_install "$1" peers
  "$1/bin/python" -c 'import torch.distributed, paddle' >&2
}

# Apart from the peers: another pin here does not fetch their 6 GB again.
fetch_client() {
  "$(peers_python)" -m venv "$1"
  pip_install "$1" client
  "$1/bin/python" -c 'import tritonclient.http' >&2
}

# What a new machine has: packages are tried there. mmdebstrap does without root, too.
fetch_debian() {
  mmdebstrap --quiet --variant=apt --include=ca-certificates,python3-venv bookworm "$1/root.tar" >&2
}

# Fills the folder once, however many clones ask at the same time. A folder without its mark was interrupted.
cached() {  # cached DIR SIZE FUNCTION
  local dir=$1 size=$2 fetch=$3 start
  [ ! -e "$dir/.complete" ] || return 0
  mkdir -p "$cache"
  (
    flock 9
    [ ! -e "$dir/.complete" ] || exit 0
    say "fetching $size into $dir"
    start=$SECONDS
    rm -rf "$dir"
    mkdir "$dir"
    begin_progress "$size" "$dir"
    "$fetch" "$dir" 8>&-
    end_progress
    touch "$dir/.complete"
    say "done in $((SECONDS - start)) s"
  ) 9>"$dir.lock"
}

libtorch() { [ -n "${TRIREME_TORCH_DIR:-}" ] || cached "$(where libtorch)" "libtorch (1.3 GB; with CUDA 6 GB)" fetch_libtorch; }
openvino() { [ -n "${TRIREME_OPENVINO_DIR:-}" ] || cached "$cache/$(section_id openvino)" "OpenVINO (60 MB)" fetch_openvino; }
debian() { cached "$(where debian)" "a bare Debian (0.3 GB)" fetch_debian; }
peers() { cached "$(where peers)" "the Python peers (6 GB)" fetch_peers; }
client() { cached "$(where client)" "Triton's HTTP client (170 MB)" fetch_client; }

# --------------------------------------------------------------------------------------------------------------------

case "${1:-}" in
  build) packages build; libtorch; openvino ;;
  package) packages build package; libtorch; openvino ;;
  wheel) packages build package ;;
  test) packages build package test; libtorch; openvino; debian ;;
  sanitize) packages build package test sanitize; libtorch; openvino ;;
  interop) packages build package test interop; libtorch; openvino; debian; peers; client ;;
  where) where "${2:-}" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
