#include "trireme/launch/stack_dump.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

using ::testing::IsEmpty;

const std::string kComputes = "#0  0x55 in compute ()\n#1  0x55 in main ()\n";
const std::string kWaits = "#0  syscall () at syscall.S:38\n#1  0x55 in trireme::data::Loader::begin() ()\n";
const std::string kReads = "#0  0x7f in read ()\n#1  0x55 in trireme::data::Dataset::batch() const ()\n";
const std::string kCalledByLoader = "#2  0x55 in run<trireme::data::Loader::Impl::ask()::{lambda()#1}> ()\n";
const std::string kIdle = "#0  0x7f in pthread_cond_wait ()\n#1  0x7f in c10::ThreadPool::main_loop ()\n";

std::string text(const std::vector<std::string>& frames) {
  return join(frames, "\n") + "\n";
}

TEST(SelectFrames, TheMainThread) {
  EXPECT_EQ(text(select_frames("[New LWP 7]\n" + kComputes + kIdle + kReads + kCalledByLoader)), kComputes);
  EXPECT_EQ(text(select_frames(kWaits + kIdle)), kWaits);
  EXPECT_THAT(select_frames("ptrace: Operation not permitted.\n"), IsEmpty());
}

TEST(SelectFrames, TheThreadThatTheLoaderWaitsFor) {
  EXPECT_EQ(text(select_frames(kWaits + kIdle + kReads + kCalledByLoader + kReads)),
            kWaits + "in a thread of the Loader:\n" + kReads + kCalledByLoader);
}

TEST(SelectFrames, ALoaderWithoutThreads) {
  const std::string main = kReads + "#2  0x55 in trireme::data::Loader::begin() ()\n";
  EXPECT_EQ(text(select_frames(main + kIdle)), main);
}

TEST(SelectFrames, ThirtyOfAThread) {
  std::string output;
  for (int frame = 0; frame < 40; ++frame) output += fmt::format("#{}  0x55 in recurse ()\n", frame);
  EXPECT_EQ(select_frames(output).size(), 30u);
}

}  // namespace
}  // namespace trireme::launch
