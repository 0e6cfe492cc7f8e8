#include "trireme/proc/lines.h"

#include <utility>

#include "trireme/core/text.h"

namespace trireme::proc {
namespace {

// Position of the first (last) newline or carriage return. Two passes of memchr are an order of magnitude faster than
// std::string_view::find_first_of.
size_t first_line_end(std::string_view bytes) {
  const size_t newline = bytes.find('\n');
  const size_t carriage_return = bytes.substr(0, newline).find('\r');
  return carriage_return != std::string_view::npos ? carriage_return : newline;
}

size_t last_line_end(std::string_view bytes) {
  const size_t newline = bytes.rfind('\n');
  const size_t after = newline == std::string_view::npos ? 0 : newline + 1;
  const size_t carriage_return = bytes.substr(after).rfind('\r');
  return carriage_return != std::string_view::npos ? after + carriage_return : newline;
}

}  // namespace

std::string LineCutter::feed(std::string_view bytes) {
  const size_t end = last_line_end(bytes);
  std::string ready;
  if (end != std::string_view::npos) {
    ready = std::exchange(held_, {});
    ready += bytes.substr(0, end + 1);
    bytes.remove_prefix(end + 1);
  }
  if (held_.empty()) since_ = Clock::now();
  held_ += bytes;
  if (held_.size() >= kMaxHeld) ready += std::exchange(held_, {});
  return ready;
}

std::string LineCutter::flush() {
  return std::exchange(held_, {});
}

std::string LineJoiner::add(int owner, std::string_view prefix, std::string_view bytes) {
  std::string text;
  if (bytes.empty()) return text;
  if (line_open_ && owner != owner_) {
    text += '\n';
    prefix_due_ = true;
  }
  owner_ = owner;
  if (prefix.empty()) {
    text += bytes;
    prefix_due_ = bytes.back() == '\n' || bytes.back() == '\r';
    line_open_ = bytes.back() != '\n';
    return text;
  }
  while (!bytes.empty()) {
    if (prefix_due_) text += prefix;
    const size_t end = first_line_end(bytes);
    const size_t taken = end == std::string_view::npos ? bytes.size() : end + 1;
    text += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    prefix_due_ = end != std::string_view::npos;
    line_open_ = text.back() != '\n';
  }
  return text;
}

void Tail::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = first_line_end(bytes);
    const std::string_view piece = bytes.substr(0, end);
    if (!piece.empty()) {
      if (!line_open_) {
        lines_.emplace_back();
        if (lines_.size() > limit_) lines_.pop_front();
      }
      std::string& line = lines_.back();
      if (line.size() < kMaxLine) line += piece.substr(0, kMaxLine - line.size());
      line_open_ = true;
    }
    if (end == std::string_view::npos) return;
    line_open_ = false;
    bytes.remove_prefix(end + 1);
  }
}

std::vector<std::string> Tail::lines() const {
  std::vector<std::string> result;
  for (const std::string& line : lines_) result.push_back(printable(line));
  return result;
}

}  // namespace trireme::proc
