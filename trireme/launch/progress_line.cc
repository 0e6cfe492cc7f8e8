#include "trireme/launch/progress_line.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::launch {
namespace {

constexpr const char* kAccuracies[] = {"acc", "accuracy", "top1"};  // as programs, Model and the trainer call it

// "step 120/600"
std::string counter(const char* noun, int64_t number, int64_t last) {
  return last > 0 ? fmt::format("{} {}/{}", noun, number, last) : fmt::format("{} {}", noun, number);
}

std::string accuracy_words(const std::map<std::string, double>& values) {
  for (const char* name : kAccuracies)
    if (const auto value = values.find(name); value != values.end())
      return fmt::format(", {} {:.4g}", name, value->second);
  return "";
}

}  // namespace

std::string progress_line(const JobTotals& totals) {
  return totals.step < 0 ? "" : progress_words(totals) + slowest_words(totals);
}

std::string progress_words(const JobTotals& totals) {
  if (totals.step < 0) return "no step recorded";
  std::string text = totals.goal.epoch > 0 ? counter("epoch", totals.goal.epoch, totals.goal.epochs) + ", " : "";
  text += counter("step", totals.step, totals.goal.last_step);
  if (totals.samples_per_second >= 0)
    text += fmt::format(", {} samples/s", speed_text(totals.samples_per_second));
  else if (totals.steps_per_second >= 0)
    text += fmt::format(", {} steps/s", speed_text(totals.steps_per_second));
  if (totals.values.contains("loss")) text += fmt::format(", loss {}", loss_text(totals.values));
  text += accuracy_words(totals.values);
  if (const auto left = seconds_left(totals))
    text += fmt::format(", ETA {}", duration_text(static_cast<int64_t>(1000 * std::min(*left, 1e9))));
  return text;
}

std::string slowest_words(const JobTotals& totals) {
  return totals.slowest ? fmt::format("; the others wait for rank {}", *totals.slowest) : "";
}

std::string loss_text(const std::map<std::string, double>& values) {
  const auto loss = values.find("loss");
  return loss == values.end() ? kNoNumber : fmt::format("{:.4g}", loss->second);
}

std::string speed_text(double per_second) {
  return per_second >= 0 ? fmt::format("{:.{}f}", per_second, per_second < 100 ? 1 : 0) : kNoNumber;
}

std::string duration_text(int64_t ms) {
  const int64_t seconds = std::max<int64_t>(0, ms / 1000);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string clipped(const std::string& text, size_t columns) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if ((text[i] & 0xC0) != 0x80 && ++width > columns) return text.substr(0, i);
  return text;
}

}  // namespace trireme::launch
