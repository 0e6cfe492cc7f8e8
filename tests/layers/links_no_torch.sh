#!/bin/sh
# The launcher must start in milliseconds and survive a broken CUDA install: no torch library in it.
# Without the addresses, which are random and may well have a c10 in them.
libraries=$(ldd "$1") || { echo "$1: not there, or not a program"; exit 1; }
if echo "$libraries" | sed 's/ (0x.*//' | grep -E 'torch|c10|cuda|nccl'; then
  echo "$1 links the libraries above; cli/ and what it uses must do without torch"
  exit 1
fi
