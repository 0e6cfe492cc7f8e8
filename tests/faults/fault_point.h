// Where a rank of a test is faulted, and how. Two variables of the environment say it:
//
//   TRIREME_TEST_FAULT="KIND PHASE RANK"    TRIREME_TEST_FOLDER=FOLDER
//
// When that rank first comes to that phase it writes FOLDER/fault and does what KIND says:
//   kill, stop, segv   sends itself the signal
//   exit_0, exit_1     calls exit()
//   memory             takes memory until the kernel kills it
//   disk               fills the disk of FOLDER/out, and goes on
//   wait               waits for the file FOLDER/go: for faults from outside, and for a rank that is slow
// A rank that comes there later, after a restart, is not faulted, because FOLDER/fault is there.
//
//   const FaultPoint faults;
//   faults.at("step");
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/core/parallel_env.h"
#include "trireme/core/text.h"

namespace trireme::test {

class FaultPoint {
 public:
  FaultPoint() : spec_(split(setting("TRIREME_TEST_FAULT", "none none -1"), ' ')) {}

  void at(const std::string& phase) const {
    if (phase != spec_.at(1) || std::to_string(get_rank()) != spec_.at(2) || exists("fault")) return;
    note("fault", phase);
    inject(spec_.at(0));
  }
  /// Adds a line to FOLDER/NAME.
  void note(const std::string& name, const std::string& text) const {
    if (!folder_.empty()) std::ofstream(folder_ / name, std::ios::app) << text << " " << ::getpid() << std::endl;
  }

 private:
  static std::string setting(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value ? value : otherwise;
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

  void inject(const std::string& kind) const {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (kind == "kill") ::raise(SIGKILL);
    if (kind == "stop") ::raise(SIGSTOP);
    if (kind == "segv") ::raise(SIGSEGV);
    if (kind == "exit_0") std::exit(0);
    if (kind == "exit_1") std::exit(1);
    if (kind == "memory") take_memory();
    if (kind == "disk") fill_disk();
    while (kind == "wait" && !exists("go")) ::usleep(5'000);  // layers: sleep ok, because a slow rank is the fault
  }

  static void take_memory() {
    constexpr size_t kBlock = size_t(16) << 20, kLimit = size_t(4) << 30;
    std::vector<std::unique_ptr<char[]>> blocks;
    for (size_t taken = 0; taken < kLimit; taken += kBlock) {
      blocks.push_back(std::make_unique<char[]>(kBlock));
      for (size_t i = 0; i < kBlock; i += 4096) static_cast<volatile char*>(blocks.back().get())[i] = 1;
    }
    throw std::runtime_error("memory did not run out after 4 GiB");
  }

  void fill_disk() const {
    constexpr int kMaxBlocks = 16'384;
    std::ofstream filler(folder_ / "out" / "filler");
    const std::string block(4096, 'x');
    for (int i = 0; i < kMaxBlocks; ++i)
      if (!(filler << block << std::flush)) return;
    throw std::runtime_error("the disk was not full after 64 MiB");
  }

  const std::vector<std::string> spec_;
  const std::filesystem::path folder_ = setting("TRIREME_TEST_FOLDER", "");
};

}  // namespace trireme::test
