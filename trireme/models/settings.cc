#include "trireme/models/settings.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::models {
namespace {

int64_t count(std::string_view network, const char* option, int64_t value) {
  if (value < 1) throw UsageError("{}: {} is {}; it must be 1 or more", network, option, value);
  return value;
}

double dropout_of(std::string_view network, const std::optional<double>& asked, const std::optional<double>& own) {
  if (asked && !own) throw UsageError("{}: dropout is {}, but this network has none; leave it out", network, *asked);
  const double p = asked.value_or(own.value_or(0));
  if (!(p >= 0 && p < 1)) throw UsageError("{}: dropout is {}; it must be in [0, 1)", network, p);
  return p;
}

}  // namespace

Settings settle(std::string_view network, const ModelOptions& options, const ModelDefaults& defaults) {
  return {.class_num = count(network, "class_num", options.class_num.value_or(defaults.class_num)),
          .in_channels = count(network, "in_channels", options.in_channels.value_or(defaults.in_channels)),
          .dropout = dropout_of(network, options.dropout, defaults.dropout),
          .small_input = options.small_input};
}

double positive_scale(std::string_view network, double scale) {
  if (!(scale > 0 && scale <= 64))
    throw UsageError("{}: the scale is {}; it must be above 0 and at most 64", network, scale);
  return scale;
}

int64_t make_divisible(double channels) {
  constexpr int64_t kDivisor = 8;
  const int64_t rounded = static_cast<int64_t>(channels + kDivisor / 2.0) / kDivisor * kDivisor;
  const int64_t enough = std::max(kDivisor, rounded);
  return static_cast<double>(enough) < 0.9 * channels ? enough + kDivisor : enough;
}

}  // namespace trireme::models
