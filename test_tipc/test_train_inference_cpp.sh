#!/bin/bash
# bash test_tipc/test_train_inference_cpp.sh CONFIG MODE: train, eval, export and infer. See test_tipc/README.md.
exec "${TRIREME:-trireme}" tipc run "$@"
