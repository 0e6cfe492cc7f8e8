#!/bin/bash
# bash test_tipc/test_train_inference_cpp.sh CONFIG MODE: train, eval, export and infer. See test_tipc/README.md.
. "$(dirname "$0")/trireme.sh"
exec "$TRIREME" tipc run "$@"
