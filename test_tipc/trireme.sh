# Which trireme the scripts here run: $TRIREME, else this clone's own, else the one in PATH.
own=$(dirname "${BASH_SOURCE[0]}")/../build/bin/trireme
[ -n "$TRIREME" ] || { [ -x "$own" ] && TRIREME=$own; } || TRIREME=$(type -P trireme) || {
  echo "trireme: error: there is no trireme here or in PATH; build it: make build" >&2
  exit 127
}
