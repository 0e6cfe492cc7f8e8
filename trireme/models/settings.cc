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

/// A list that has one number for each place, or nothing where the network has no such places.
template <typename Number>
void check_list(std::string_view network, const char* option, const std::vector<Number>& list, size_t places) {
  if (list.empty()) return;
  if (places == 0)
    throw UsageError("{}: {} is not an option of this network; leave it out (PPLCNet and PaddleClas' ResNets have it)",
                     network, option);
  if (list.size() != places)
    throw UsageError("{}: {} has {} numbers; it must have {}", network, option, list.size(), places);
}

std::array<int64_t, kStrides> strides_of(std::string_view network, const ModelOptions& options) {
  std::array<int64_t, kStrides> strides{};
  strides.fill(2);
  if (options.small_input && !options.stride_list.empty())
    throw UsageError("{}: small_input and stride_list both set the first stride; leave one of them out", network);
  if (options.small_input) strides[0] = 1;
  for (size_t i = 0; i < options.stride_list.size(); ++i)
    strides[i] = count(network, "stride_list", options.stride_list[i]);
  return strides;
}

bool first_short_conv_of(std::string_view network, const std::optional<bool>& asked, bool own) {
  if (asked && !own)
    throw UsageError("{}: use_first_short_conv is not an option of this network; leave it out", network);
  return asked.value_or(own);
}

}  // namespace

Settings settle(std::string_view network, const ModelOptions& options, const ModelDefaults& defaults) {
  check_list(network, "stride_list", options.stride_list, defaults.lr_parts == 0 ? 0 : kStrides);
  check_list(network, "lr_mult_list", options.lr_mult_list, defaults.lr_parts);
  for (const double factor : options.lr_mult_list)
    if (!(factor >= 0)) throw UsageError("{}: lr_mult_list has {}; it must not be negative", network, factor);
  return {.class_num = count(network, "class_num", options.class_num.value_or(defaults.class_num)),
          .in_channels = count(network, "in_channels", options.in_channels.value_or(defaults.in_channels)),
          .dropout = dropout_of(network, options.dropout, defaults.dropout),
          .small_input = options.small_input,
          .strides = strides_of(network, options),
          .lr_mult_list = options.lr_mult_list,
          .first_short_conv = first_short_conv_of(network, options.first_short_conv, defaults.first_short_conv)};
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
