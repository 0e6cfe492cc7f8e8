#!/bin/bash
# bash test_tipc/prepare.sh CONFIG MODE: what the chain needs before it runs. See test_tipc/README.md.
. "$(dirname "$0")/trireme.sh"
exec "$TRIREME" tipc prepare "$@"
