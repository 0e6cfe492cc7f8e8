#!/usr/bin/env bash
# run.sh BUILD_DIR COMPILER: installs BUILD_DIR, then builds and runs tests/install/downstream against the copy, by
# find_package and by pkg-config: first where it was installed, then moved elsewhere.
set -euo pipefail
build=$1
compiler=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

by_find_package() {  # PREFIX TARGET
  cmake -G Ninja -S "$here/downstream" -B "$1-cmake" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$1" >"$scratch/log" ||
    { cat "$scratch/log"; return 1; }
  cmake --build "$1-cmake" --target "$2"
  "$1-cmake/downstream"
}

by_pkg_config() {  # PREFIX
  local pc flags
  pc=$(dirname "$(find "$1" -name trireme.pc)")
  flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs trireme)
  # shellcheck disable=SC2086
  "$compiler" -std=c++20 "$here/downstream/main.cc" $flags -o "$1-pkg-config"
  "$1-pkg-config"
}

check() {  # PREFIX TARGET
  echo "--- $1"
  by_find_package "$1" "$2"
  by_pkg_config "$1"
  "$1/bin/trireme" --help >/dev/null
}

# Trains on two processes by the installed launcher. TRIREME_DATA_DIR: with the images that came along.
by_training() {  # PREFIX
  [ -x "$1-cmake/train" ] || return 0
  TRIREME_DATA_DIR=$1/share/trireme "$1/bin/trireme" launch -n 2 --log_dir "$scratch/train-log" "$1-cmake/train"
}

DESTDIR='' cmake --install "$build" --prefix "$scratch/installed" >/dev/null
check "$scratch/installed" all
by_training "$scratch/installed"
mv "$scratch/installed" "$scratch/moved"
check "$scratch/moved" downstream
