#include "trireme/launch/live_line.h"

#include <utility>

#include "trireme/launch/progress_line.h"

namespace trireme::launch {
namespace {

constexpr Millis kPlainLineEvery{10'000};

}  // namespace

bool LiveLine::is_wanted(const Request& request, bool on_terminal) {
  if (request.progress != Progress::automatic) return request.progress == Progress::on;
  return on_terminal && request.log_level <= LogLevel::info;
}

LiveLine::LiveLine(proc::Console& console, const Request& request)
    : console_(console),
      on_terminal_(console.on_terminal()),
      relays_(request.ssh_child),
      over_(!is_wanted(request, on_terminal_)) {}

void LiveLine::show(const JobView& job) {
  show(progress_line(totals_of(job.ranks)));
}

void LiveLine::show(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  if (relays_)
    console_.say_between_lines(RelayedLine::kMark + text);
  else if (on_terminal_)
    console_.show_status(clipped(text, console_.columns() - 1));  // in the last column a terminal is about to wrap
  else
    say_now_and_then(text);
}

void LiveLine::say_now_and_then(const std::string& text) {
  if (text.empty() || text == said_ || !next_.passed()) return;
  next_ = Deadline::in(kPlainLineEvery);
  said_ = text;
  console_.say("trireme: " + text);
}

void LiveLine::end() {
  const std::lock_guard lock(mutex_);
  if (!over_ && relays_) console_.say_between_lines(std::string(1, RelayedLine::kMark));
  if (!over_ && on_terminal_) console_.show_status("");
  over_ = true;
}

std::string RelayedLine::take_out(std::string_view bytes, const std::function<void(const std::string&)>& show) {
  const std::string text = std::exchange(held_, {}) + std::string(bytes);
  std::string others;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const size_t next = end == std::string::npos ? text.size() : end + 1;
    const bool relayed = line_start_ && text[at] == kMark && next - at <= kMaxLine;
    if (relayed && end == std::string::npos) {
      held_ = text.substr(at);
      break;
    }
    if (relayed)
      show(text.substr(at + 1, end - at - 1));
    else
      others += text.substr(at, next - at);
    line_start_ = end != std::string::npos;
    at = next;
  }
  return others;
}

}  // namespace trireme::launch
