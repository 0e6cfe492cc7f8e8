#include "trireme/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "trireme/core/error.h"
#include "trireme/train/progress_text.h"

namespace trireme::train {
namespace {

constexpr size_t kBarLength = 30;

std::string counter_text(int64_t step, int64_t steps) {
  const std::string all = std::to_string(steps);
  return fmt::format("step {:>{}}/{}", step, all.size(), all);
}

std::string logs_text(const Results& logs) {
  std::string text;
  for (const auto& [name, value] : logs) text += fmt::format(" - {}: {}", name, number_text(value));
  return text;
}

double pace(const ProgressText& text) {
  return text.seconds / static_cast<double>(std::max<int64_t>(text.step, 1));
}

std::string bar_text(int64_t step, int64_t steps, size_t length) {
  const size_t done = steps == 0 ? length : length * static_cast<size_t>(step) / static_cast<size_t>(steps);
  std::string bar = std::string(done, '=') + std::string(length - done, '.');
  if (done > 0 && done < length) bar[done - 1] = '>';
  return fmt::format(" [{}]", bar);
}

}  // namespace

std::string number_text(double value) {
  const double size = std::abs(value);
  return size > 0 && size <= 1e-3 ? fmt::format("{:.4e}", value) : fmt::format("{:.4f}", value);
}

std::string pace_text(double seconds_per_step) {
  if (seconds_per_step >= 1) return fmt::format("{:.1f}s/step", seconds_per_step);
  if (seconds_per_step >= 1e-3) return fmt::format("{:.0f}ms/step", seconds_per_step * 1e3);
  return fmt::format("{:.0f}us/step", seconds_per_step * 1e6);
}

std::string duration_text(double seconds) {
  const int64_t all = std::llround(seconds);
  const int64_t hours = all / 3600, minutes = all / 60 % 60, rest = all % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest) : fmt::format("{}:{:02}", minutes, rest);
}

std::string progress_line(const ProgressText& text) {
  return fmt::format("{}{} - {}", counter_text(text.step, text.steps), logs_text(text.logs), pace_text(pace(text)));
}

std::string progress_bar(const ProgressText& text, size_t columns) {
  const std::string before = counter_text(text.step, text.steps);
  const std::string time = text.step < text.steps
                               ? " - ETA: " + duration_text(pace(text) * static_cast<double>(text.steps - text.step))
                               : "";
  const std::string after = fmt::format("{}{} - {}", time, logs_text(text.logs), pace_text(pace(text)));
  const size_t words = before.size() + after.size() + 3;  // " [" and "]"
  const size_t room = columns > words ? std::min(columns - words, kBarLength) : 0;
  const std::string bar = room >= 5 ? bar_text(text.step, text.steps, room) : "";
  return (before + bar + after).substr(0, columns);
}

std::string cost_text(const Run& run) {
  const auto done = static_cast<double>(run.step + 1);
  const double seconds = std::max(run.reader_seconds + run.batch_seconds, 1e-9);
  return fmt::format(" - avg_reader_cost: {:.5f} sec - avg_batch_cost: {:.5f} sec - ips: {:.1f} samples/sec",
                     run.reader_seconds / done, run.batch_seconds / done,
                     done * static_cast<double>(run.batch_size * run.me.size) / seconds);
}

}  // namespace trireme::train

namespace trireme::callback {

using train::ProgressText;

namespace {

size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::ostream& ProgressBar::out() const {
  return options_.out != nullptr ? *options_.out : std::cout;
}

int ProgressBar::verbose(const Run& run) const {
  return options_.verbose.value_or(run.verbose);
}

bool ProgressBar::draws_bar(const Run& run) const {
  if (verbose(run) != 1) return false;
  return options_.terminal.value_or(options_.out == nullptr && ::isatty(STDOUT_FILENO) == 1);
}

bool ProgressBar::is_due(const Run& run) const {
  const int64_t every = std::max<int64_t>(options_.log_freq.value_or(run.log_freq), 1);
  return (run.step + 1) % every == 0;
}

void ProgressBar::say(const Run& run, const std::string& line) {
  if (run.is_main() && verbose(run) > 0) out() << line << "\n" << std::flush;
}

// A bar is drawn over the one before; the last one stays.
void ProgressBar::show(const Run& run, bool last) {
  if (!run.is_main() || verbose(run) == 0) return;
  const ProgressText text{run.step + 1, run.steps, run.logs, run.reader_seconds + run.batch_seconds};
  if (!draws_bar(run)) return say(run, train::progress_line(text) + (verbose(run) >= 3 ? train::cost_text(run) : ""));
  out() << "\r" << train::progress_bar(text, terminal_columns() - 1) << "\x1b[K" << (last ? "\n" : "") << std::flush;
}

void ProgressBar::on_epoch_begin(Run& run) {
  say(run, fmt::format("Epoch {}/{}", run.epoch + 1, run.epochs));
}

void ProgressBar::on_train_batch_end(Run& run) {
  const bool last = run.step + 1 == run.steps || run.stop;
  if (run.logged && (last || is_due(run))) show(run, last);
}

void ProgressBar::on_eval_begin(Run& run) {
  say(run, "Eval begin...");
}

// The last step is shown with the results, by on_eval_end().
void ProgressBar::on_eval_batch_end(Run& run) {
  if (run.step + 1 < run.steps && is_due(run)) show(run, false);
}

void ProgressBar::on_eval_end(Run& run) {
  show(run, true);
  say(run, fmt::format("Eval samples: {}", run.samples));
}

void ProgressBar::on_predict_begin(Run& run) {
  say(run, "Predict begin...");
}

void ProgressBar::on_predict_batch_end(Run& run) {
  const bool last = run.step + 1 == run.steps;
  if (last || is_due(run)) show(run, last);
}

void ProgressBar::on_predict_end(Run& run) {
  say(run, fmt::format("Predict samples: {}", run.samples));
}

}  // namespace trireme::callback
