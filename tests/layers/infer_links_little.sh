#!/bin/sh
# Inference must do without what trains and without what joins machines; its engines come as plugins.
libraries=$(ldd "$1") || { echo "$1: not there, or not a program"; exit 1; }
functions=$(nm -C "$1" | grep -E ' [TtWw] .*trireme::') || { echo "$1: no names of functions in it; stripped?"; exit 1; }
spaces='trireme::(launch|models|nn|optim|proc|shm|tipc|train|trainer)::'
names='trireme::(all_reduce|init_parallel_env|Checkpoint|DataParallel|GradientSync|Group|TcpStore|World)\b'
bad=0
if echo "$libraries" | sed 's/ (0x.*//' | grep -E 'torch|c10|cuda|nccl|openvino|mpi|hwloc'; then
  echo "$1 links the libraries above; engines must be plugins"
  bad=1
fi
if echo "$functions" | grep -E "$spaces|$names" | cut -c1-200 | head -5 | grep .; then
  echo "$1 carries the functions above; apps/infer.cc and trireme/deploy/infer must do without those modules"
  bad=1
fi
exit $bad
