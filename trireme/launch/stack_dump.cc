#include "trireme/launch/stack_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/machine/program.h"
#include "trireme/watch/process_state.h"

namespace trireme::launch {
namespace {

constexpr size_t kMaxOutput = 4 << 20;
constexpr size_t kMaxFrames = 30;
constexpr const char* kInLoader = "trireme::data::Loader::";
constexpr const char* kInDataset = "trireme::data::Dataset::";

/// Its path; "" when it is not installed.
std::string find_tool(const std::string& name) try {
  return resolve_program({name}, env::get("PATH").value_or("/usr/bin:/bin"), /*no_python=*/true).front();
} catch (const Error&) {
  return "";
}

using Frames = std::vector<std::string>;

// The threads of the output, each from its frame #0 on.
std::vector<Frames> threads_of(const std::string& output) {
  std::vector<Frames> threads;
  for (const std::string& line : split(output, '\n')) {
    if (!line.starts_with("#")) continue;
    if (threads.empty() || line.starts_with("#0 ")) threads.emplace_back();
    if (threads.back().size() < kMaxFrames) threads.back().push_back(line);
  }
  return threads;
}

bool mentions(const Frames& frames, const char* name) {
  return std::any_of(frames.begin(), frames.end(), [&](const auto& frame) { return frame.find(name) != frame.npos; });
}

// The main thread first; from gdb also the others.
std::vector<std::string> stack_command(int pid) {
  if (const std::string gdb = find_tool("gdb"); !gdb.empty())
    return {gdb,
            "-nx",
            "-batch",
            "-iex",
            "set debuginfod enabled off",
            "-iex",
            "set print frame-arguments none",
            "-p",
            std::to_string(pid),
            "-ex",
            fmt::format("thread apply all -ascending -q -s bt {}", kMaxFrames)};
  if (const std::string tool = find_tool("eu-stack"); !tool.empty())
    return {tool, "-1", "-n", std::to_string(kMaxFrames), "-p", std::to_string(pid)};
  return {};
}

std::string first_line(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name));
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

StackDump::StackDump(int pid, Deadline deadline) : pid_(pid), deadline_(deadline) {
  const auto command = stack_command(pid);
  if (command.empty()) return;
  try {
    tool_.emplace();
    asked_ = true;
    tool_->start({.command = command, .environment = {"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C"}});
  } catch (const SystemError&) {
    tool_.reset();
  }
}

bool StackDump::done() {
  if (!tool_) return true;
  read(Deadline::in(Millis(0)));
  if (tool_->running() > 0 && !deadline_.passed()) return false;
  tool_.reset();
  return true;
}

void StackDump::wait() {
  if (tool_) read(deadline_);
}

void StackDump::read(Deadline deadline) {
  for (const proc::Event& event : tool_->wait(deadline))
    if (event.kind == proc::Event::Kind::output && output_.size() < kMaxOutput) output_ += event.bytes;
}

// The main thread is where a training waits; libtorch has many others.
std::vector<std::string> select_frames(const std::string& output) {
  const std::vector<Frames> threads = threads_of(output);
  if (threads.empty()) return {};
  Frames frames = threads.front();
  if (!mentions(frames, kInLoader) || mentions(frames, kInDataset)) return frames;
  const auto reader =
      std::find_if(threads.begin(), threads.end(), [](const Frames& thread) { return mentions(thread, kInDataset); });
  if (reader == threads.end()) return frames;
  frames.push_back("in a thread of the Loader:");
  frames.insert(frames.end(), reader->begin(), reader->end());
  return frames;
}

std::vector<std::string> StackDump::lines() const {
  if (std::vector<std::string> frames = select_frames(output_); !frames.empty()) return frames;
  const std::string channel = watch::read_wait_channel(pid_);
  return {fmt::format("no stack ({}); in the kernel: {}; system call: {}",
                      asked_ ? "the debugger gave none in time" : "gdb or eu-stack would show one",
                      channel.empty() ? "not waiting" : channel, printable(first_line(pid_, "syscall")))};
}

}  // namespace trireme::launch
