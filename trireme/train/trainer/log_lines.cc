#include "trireme/train/trainer/log_lines.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include "trireme/core/text.h"

namespace trireme::trainer {
namespace {

std::string numbers_text(const Results& results) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : results) parts.push_back(fmt::format("{}: {:.5f}", name, value));
  return join(parts, ", ");
}

std::string cost_text(const Pace& pace) {
  return fmt::format("batch_cost: {:.5f}s, reader_cost: {:.5f}", pace.batch_cost(), pace.reader_cost());
}

double seconds_left(const Place& place, const Pace& pace) {
  const int64_t iters = (place.epochs - place.epoch) * place.steps - place.step;
  return static_cast<double>(iters) * pace.batch_cost();
}

}  // namespace

std::string train_line(const Place& place, const RateText& lr, const Results& results, const Pace& pace,
                       const std::string& memory) {
  return fmt::format("[Train][Epoch {}/{}][Iter: {}/{}]lr({}): {:.8f}, {}, {}, ips: {:.5f} samples/s, eta: {}{}",
                     place.epoch + 1, place.epochs, place.step, place.steps, lr.title, lr.value, numbers_text(results),
                     cost_text(pace), pace.rows_per_second(), eta_text(seconds_left(place, pace)), memory);
}

std::string train_average_line(const Place& place, int64_t first, const Results& results) {
  const std::string part = first == 0 ? "" : fmt::format(" of iterations {}-{}", first, place.steps - 1);
  return fmt::format("[Train][Epoch {}/{}][Avg{}]{}", place.epoch + 1, place.epochs, part, numbers_text(results));
}

std::string eval_line(const Place& place, const std::string& mark, const Results& results, const Pace& pace) {
  return fmt::format("[Eval][Epoch {}]{}[Iter: {}/{}]{}, {}, ips: {:.5f} images/sec", place.epoch, mark, place.step,
                     place.steps, numbers_text(results), cost_text(pace), pace.rows_per_second());
}

std::string eval_average_line(const Place& place, const std::string& mark, const Results& results) {
  return fmt::format("[Eval][Epoch {}]{}[Avg]{}", place.epoch, mark, numbers_text(results));
}

std::string best_line(int64_t epoch, double best) {
  return fmt::format("[Eval][Epoch {}][best metric: {:.5f}]", epoch, best);
}

std::string eta_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  const int64_t days = whole / 86400;
  const std::string clock = fmt::format("{}:{:02}:{:02}", whole / 3600 % 24, whole / 60 % 60, whole % 60);
  return days == 0 ? clock : fmt::format("{} day{}, {}", days, days == 1 ? "" : "s", clock);
}

std::string process_memory_text() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return "";
  return fmt::format(", max_mem_resident: {} MB", usage.ru_maxrss / 1024);
}

}  // namespace trireme::trainer
