#!/usr/bin/env bash
# repeat.sh TIMES COMMAND...: runs the command TIMES times, stops at the first failure and exits with its exit code.
set -uo pipefail
times=$1
shift
for ((run = 1; run <= times; ++run)); do
  echo "--- run $run of $times"
  "$@" || { code=$?; echo "failed in run $run of $times (exit $code)" >&2; exit "$code"; }
done
