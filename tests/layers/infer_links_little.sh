#!/bin/sh
# Inference must do without what trains and without what joins machines; its engines come as plugins.
libraries=$(ldd "$1") || { echo "$1: not there, or not a program"; exit 1; }
if echo "$libraries" | grep -E 'torch|c10|cuda|nccl|openvino|mpi|hwloc'; then
  echo "$1 links the libraries above; engines must be plugins"
  exit 1
fi
if nm -C "$1" 2>/dev/null | grep -E ' [TtWw] trireme::(comm|train|trainer|launch|parallel|optim)::' | head -5 | grep .; then
  echo "$1 carries the functions above; apps/infer.cc and trireme/infer must do without those modules"
  exit 1
fi
