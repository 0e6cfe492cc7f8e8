#include "trireme/launch/stack_dump.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "trireme/core/backoff.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/machine/program.h"
#include "trireme/watch/process_state.h"

namespace trireme::launch {
namespace {

constexpr size_t kMaxOutput = 4 << 20;
constexpr size_t kMaxFrames = 30;
constexpr Millis kDiskTime{2'000};  // for threads that wait for a disk a moment only
constexpr Millis kDiskLook{100};
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

bool waits_for_disk(int pid) {
  std::error_code error;
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid), error);
  for (; !error && thread != std::filesystem::directory_iterator(); thread.increment(error)) {
    const auto id = parse_int(thread->path().filename().string(), 1, std::numeric_limits<int>::max());
    if (id && watch::read_process_state(static_cast<int>(*id)) == watch::ProcessState::disk) return true;
  }
  return false;
}

std::string last_line(const std::string& output) {
  const std::string text(trim(output));
  return text.substr(text.rfind('\n') + 1);
}

std::string first_line(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name));
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

StackDump::StackDump(int pid, Deadline deadline)
    : pid_(pid),
      deadline_(deadline),
      disk_deadline_(earlier(deadline, Deadline::in(kDiskTime))),
      command_(stack_command(pid)),
      was_stopped_(watch::read_process_state(pid) == watch::ProcessState::stopped) {
  if (!command_.empty()) start();
}

StackDump::~StackDump() {
  if (running()) end(Tool::killed);
}

void StackDump::start() {
  state_ = waits_for_disk(pid_) ? Tool::waits_for_disk : Tool::runs;
  if (state_ != Tool::runs) return;
  try {
    tool_.emplace();
    tool_->start({.command = command_, .environment = {"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C"}});
  } catch (const SystemError&) {
    tool_.reset();
    state_ = Tool::absent;
  }
}

// A tool that is killed may leave the stop signal by which it has taken hold of the process.
void StackDump::end(Tool how) {
  tool_.reset();
  state_ = how;
  if (how == Tool::killed && !was_stopped_) ::kill(pid_, SIGCONT);
}

bool StackDump::done() {
  if (state_ == Tool::waits_for_disk && !disk_deadline_.passed()) start();
  if (state_ == Tool::waits_for_disk) return disk_deadline_.passed();
  if (!running()) return true;
  read(Deadline::in(Millis(0)));
  if (tool_->running() > 0 && !deadline_.passed()) return false;
  end(tool_->running() > 0 ? Tool::killed : Tool::ended);
  return true;
}

void StackDump::wait() {
  if (running()) return read(deadline_);
  Backoff pause(kDiskLook, kDiskLook);
  if (state_ == Tool::waits_for_disk) pause.pause(disk_deadline_);
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

std::string StackDump::reason() const {
  switch (state_) {
    case Tool::absent:
      return "gdb or eu-stack would show one";
    case Tool::waits_for_disk:
      return "a thread waits for a disk, and a debugger would wait with it";
    case Tool::ended:
      return output_.empty() ? "the debugger gave none" : "the debugger says: " + printable(last_line(output_));
    default:
      return "the debugger gave none in time";
  }
}

std::vector<std::string> StackDump::lines() const {
  if (std::vector<std::string> frames = select_frames(output_); !frames.empty()) return frames;
  const std::string channel = watch::read_wait_channel(pid_);
  return {fmt::format("no stack ({}); in the kernel: {}; system call: {}", reason(),
                      channel.empty() ? "not waiting" : channel, printable(first_line(pid_, "syscall")))};
}

}  // namespace trireme::launch
