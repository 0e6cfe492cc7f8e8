#include "trireme/data/image/resize.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/image/taps.h"

namespace trireme::image {
namespace {

constexpr std::array<std::pair<std::string_view, Interpolation>, 3> kInterpolations{{
    {"nearest", Interpolation::nearest},
    {"bilinear", Interpolation::bilinear},
    {"bicubic", Interpolation::bicubic},
}};

}  // namespace

Interpolation parse_interpolation(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [known, value] : kInterpolations) {
    if (known == to_lower(name)) return value;
    names.emplace_back(known);
  }
  throw UsageError("interpolation: {}: no such method; there are {}", printable(name), join(names, ", "));
}

Backend parse_backend(std::string_view name) {
  if (to_lower(name) == "cv2") return Backend::cv2;
  if (to_lower(name) == "pil") return Backend::pil;
  throw UsageError("backend: {}: no such way to resize; there are cv2, pil", printable(name));
}

void resize(const View& source, Size size, const ResizeMethod& method, Image& out) {
  thread_local Plan plan;
  make_plan({.length = source.width, .size = size.width}, {.length = source.height, .size = size.height}, method, plan);
  resample(source, {0, 0, source.width, source.height}, plan, out);
}

}  // namespace trireme::image
