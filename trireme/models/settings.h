// ModelOptions with all defaults filled in: what a network is built from.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/models/classifier.h"

namespace trireme::models {

struct ModelDefaults {
  int64_t class_num = 1000;
  int64_t in_channels = 3;
  std::optional<double> dropout = {};  ///< nothing: the network has none
};

struct Settings {
  int64_t class_num = 0;
  int64_t in_channels = 0;
  double dropout = 0;
  bool small_input = false;
  int64_t stem_stride() const { return small_input ? 1 : 2; }
};

/// UsageError that begins with the network's name.
Settings settle(std::string_view network, const ModelOptions& options, const ModelDefaults& defaults = {});

/// `scale` if it is one, else UsageError that begins with the network's name.
double positive_scale(std::string_view network, double scale);

/// The multiple of 8 nearest to `channels`, at least 8, and not less than 9/10 of it: how widths are scaled in
/// MobileNet and its successors.
int64_t make_divisible(double channels);

}  // namespace trireme::models
