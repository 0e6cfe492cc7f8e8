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

constexpr std::array<std::pair<std::string_view, Interpolation>, 7> kInterpolations{{
    {"nearest", Interpolation::nearest},
    {"bilinear", Interpolation::bilinear},
    {"bicubic", Interpolation::bicubic},
    {"area", Interpolation::area},
    {"lanczos", Interpolation::lanczos},
    {"box", Interpolation::box},
    {"hamming", Interpolation::hamming},
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

void check(const ResizeMethod& method) {
  const bool pil = method.backend == Backend::pil;
  const bool only_pil = method.interpolation == Interpolation::box || method.interpolation == Interpolation::hamming;
  if (pil && method.interpolation == Interpolation::area)
    throw UsageError("interpolation: area: not in backend pil; use box, or backend cv2");
  if (!pil && only_pil)
    throw UsageError("interpolation: box and hamming: not in backend cv2; use area, or backend pil");
}

void resize(const View& source, Size size, const ResizeMethod& method, Image& out) {
  check(method);
  thread_local Plan plan;
  make_plan({.length = source.width, .size = size.width}, {.length = source.height, .size = size.height}, method, plan);
  resample(source, {0, 0, source.width, source.height}, plan, out);
}

}  // namespace trireme::image
