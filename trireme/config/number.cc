#include "trireme/config/number.h"

#include <charconv>
#include <cmath>

namespace trireme::config {
namespace {

constexpr int kMaxDepth = 20;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// A recursive descent over  sum = product {(+|-) product},  product = factor {(*|/) factor},
/// factor = (+|-) factor | ( sum ) | number. A failure is sticky.
class Evaluator {
 public:
  explicit Evaluator(std::string_view text) : rest_(text) {}

  std::optional<double> run() {
    const double value = sum(0);
    skip_spaces();
    if (failed_ || !rest_.empty() || !std::isfinite(value)) return std::nullopt;
    return value;
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }

  bool take(char c) {
    skip_spaces();
    if (failed_ || rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  double fail() {
    failed_ = true;
    return 0;
  }

  double sum(int depth) {
    double value = product(depth);
    for (;;) {
      if (take('+'))
        value += product(depth);
      else if (take('-'))
        value -= product(depth);
      else
        return value;
    }
  }

  double product(int depth) {
    double value = factor(depth);
    for (;;) {
      if (take('*'))
        value *= factor(depth);
      else if (take('/'))
        value /= factor(depth);
      else
        return value;
    }
  }

  double factor(int depth) {
    if (failed_ || depth > kMaxDepth) return fail();
    if (take('-')) return -factor(depth + 1);
    if (take('+')) return factor(depth + 1);
    if (!take('(')) return number();
    const double value = sum(depth + 1);
    return take(')') ? value : fail();
  }

  double number() {
    const bool octal = rest_.size() > 1 && rest_[0] == '0' && is_digit(rest_[1]);
    if (rest_.empty() || octal || (!is_digit(rest_[0]) && rest_[0] != '.')) return fail();
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return fail();
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace

std::optional<double> evaluate(std::string_view text) {
  return Evaluator(text).run();
}

}  // namespace trireme::config
