# The front door: set-up, CMake presets and ctest under one roof. `make` lists what there is.
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
# Two more than there are processors: tests of several processes often wait, and each of them takes two places.
TEST_JOBS ?= $(shell expr $(JOBS) + 2)
# No process interrupts another because it was woken up (sched(7), SCHED_BATCH). Gloo's threads are woken while the waker
# holds the lock that they need, and spin: with more ranks than processors that takes most of the processors' time.
BATCH = $(if $(shell command -v chrt),chrt --batch 0)
REPEAT ?= 10
# clang takes half of g++'s time for files with libtorch. A build folder keeps the compiler with which it began.
ifeq ($(origin CXX),default)
CXX = $(or $(shell command -v clang++-16),c++)
endif
export CXX

SOURCES = $(shell find $(wildcard trireme cli apps examples tests bench) -name '*.h' -o -name '*.cc')

.PHONY: help build test sanitize interop demo bench install package wheel format tidy soak clean setup-test setup-sanitize format-check
.NOTPARALLEL:

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

build:  ## set up and build; programs land in build/bin
	setup/setup.sh build
	cmake --preset release
	cmake --build --preset products

test: setup-test  ## build and run the tests that need only our own set-up
	cmake --preset release
	cmake --build --preset release
	$(BATCH) ctest --preset release -j $(TEST_JOBS)

sanitize: setup-sanitize format-check  ## layout, static checks, sanitizers, fuzzers: what every change must pass besides the tests
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan -j $(JOBS)
	cmake --preset tsan
	cmake --build --preset tsan
	ctest --preset tsan -j $(JOBS)

interop:  ## tests against the real PyTorch and PaddlePaddle (6 GB, fetched once)
	setup/setup.sh interop
	cmake --preset release
	cmake --build --preset interop
	ctest --preset interop

demo:  ## see it learn: two processes train together, a model is exported, an image classified
	@setup/setup.sh build
	@mkdir -p build && cmake --preset release >build/configure.log || { cat build/configure.log; false; }
	@cmake --build build --target trireme_demo
	@setup/demo.sh build/bin

bench: build  ## side by side with the peers
	setup/setup.sh interop
	cmake --build build --target trireme_benches
	bench/run_all.py --write

install: build  ## install below PREFIX (and DESTDIR)
	cmake --install build --prefix $(PREFIX)

package:  ## tarball, Debian packages and a Python wheel of the launcher, in build/packages
	setup/setup.sh package
	cmake --preset release
	umask 022 && cmake --build build --target trireme_packages

wheel:  ## only the wheel, in build-wheel/packages: needs no libtorch
	setup/setup.sh wheel
	cmake --preset wheel
	umask 022 && cmake --build --preset wheel

format:  ## lay out all C++ files
	clang-format-16 -i $(SOURCES)

tidy: setup-sanitize  ## static checks (part of the asan build)
	cmake --preset asan
	cmake --build --preset asan

soak: setup-sanitize  ## fuzz for ten minutes each, all faults, then all tests REPEAT times on a loaded machine; stop at the first failure
	cmake --preset asan
	cmake --build --preset asan
	TRIREME_FUZZ_SECONDS=600 ctest --preset asan -L fuzz
	cmake --preset debug  # file by file: a missing include shows
	cmake --build --preset debug
	cmake --preset release
	cmake --build --preset release
	ctest --preset soak -R matrix_soak  # with the bounds of docs/reliability.md, which a loaded machine need not keep
	TRIREME_CHAOS_SECONDS=300 tests/soak/under_load.sh $(JOBS) tests/soak/repeat.sh $(REPEAT) ctest --preset soak -j $(JOBS)

clean:  ## remove the build folders (the cache of libtorch and peers stays)
	rm -rf build build-*

# --- parts of the above ---

setup-test:
	setup/setup.sh test

setup-sanitize:
	setup/setup.sh sanitize

format-check: setup-sanitize
	@echo clang-format-16 --dry-run -Werror ...
	@clang-format-16 --dry-run -Werror $(SOURCES)
