#!/usr/bin/env bash
# check.sh COMPILER: builds and runs the project `downstream` beside this file against the copy `installed`, by
# find_package and by pkg-config: first where it was installed, then moved elsewhere.
set -euo pipefail
compiler=$1
here=$(cd "$(dirname "$0")" && pwd)

by_find_package() {  # PREFIX TARGET
  cmake -G Ninja -S "$here/downstream" -B "$1-cmake" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$1" >"$here/log" ||
    { cat "$here/log"; return 1; }
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

# Every program starts: its libraries are found.
by_help() {  # PREFIX
  local program
  for program in "$1"/bin/trireme*; do
    "$program" --help >/dev/null
  done
}

check() {  # PREFIX TARGET
  echo "--- $1"
  by_find_package "$1" "$2"
  by_pkg_config "$1"
  by_help "$1"
}

# Trains on two processes by the installed launcher, with the images that came along.
by_training() {  # PREFIX
  [ -x "$1-cmake/train" ] || return 0
  "$1/bin/trireme" launch -n 2 --log_dir "$here/train-log" "$1-cmake/train"
}

check "$here/installed" all
by_training "$here/installed"
mv "$here/installed" "$here/moved"
check "$here/moved" downstream
