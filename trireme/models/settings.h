// ModelOptions with all defaults filled in: what a network is built from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/models/classifier.h"

namespace trireme::models {

inline constexpr size_t kStrides = 5;  // of ModelOptions::stride_list

struct ModelDefaults {
  int64_t class_num = 1000;
  int64_t in_channels = 3;
  std::optional<double> dropout = {};  ///< nothing: the network has none
  size_t lr_parts = 0;                 ///< entries of lr_mult_list; 0: the network has neither it nor stride_list
  bool first_short_conv = false;       ///< whether first_short_conv is an option of it
};

struct Settings {
  int64_t class_num = 0;
  int64_t in_channels = 0;
  double dropout = 0;
  bool small_input = false;
  std::array<int64_t, kStrides> strides{};  ///< 2 unless stride_list says otherwise; the first is 1 for a small input
  std::vector<double> lr_mult_list = {};
  bool first_short_conv = false;
  int64_t stem_stride() const { return strides[0]; }
};

/// UsageError that begins with the network's name.
Settings settle(std::string_view network, const ModelOptions& options, const ModelDefaults& defaults = {});

/// `scale` if it is one, else UsageError that begins with the network's name.
double positive_scale(std::string_view network, double scale);

/// The multiple of 8 nearest to `channels`, at least 8, and not less than 9/10 of it: how widths are scaled in
/// MobileNet and its successors.
int64_t make_divisible(double channels);

}  // namespace trireme::models
