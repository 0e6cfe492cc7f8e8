#!/usr/bin/env bash
# under_load.sh LOOPS COMMAND...: runs the command while LOOPS busy loops compete with it for the processors. Exits with
# the command's exit code, after the loops have ended. TRIREME_TEST_LOADED=1 tells tests to widen their bounds on times.
set -uo pipefail
loops=$1
shift
pids=()
end_loops() {
  kill "${pids[@]}" 2>/dev/null
  wait "${pids[@]}" 2>/dev/null
}
trap end_loops EXIT
for ((i = 0; i < loops; ++i)); do
  nice -n 5 sh -c 'while :; do :; done' &
  pids+=($!)
done
TRIREME_TEST_LOADED=1 "$@"
