#include "trireme/data/image/taps.h"

#include <algorithm>
#include <cmath>

namespace trireme::image {
namespace {

/// Keys' cubic; `a` is its slope: -0.75 in OpenCV, -0.5 in Pillow.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// Half the width of the filter when nothing shrinks.
double support_of(const ResizeMethod& method) {
  return method.interpolation == Interpolation::bilinear ? 1 : 2;
}

/// How much a pixel at distance x counts.
double filter(double x, const ResizeMethod& method) {
  if (method.interpolation == Interpolation::bilinear) return std::max(0.0, 1 - std::abs(x));
  return cubic(x, method.backend == Backend::pil ? -0.5 : -0.75);
}

/// The wanted window and step in source pixels.
struct Grid {
  double begin, scale;
  int first, count;

  Grid(const Axis& axis, Backend backend)
      : begin(axis.begin),
        scale((axis.span > 0 ? axis.span : axis.length) / axis.size),
        first(axis.count > 0 ? axis.first : 0),
        count(axis.count > 0 ? axis.count : axis.size) {
    // OpenCV divides the other way round first; the last digit decides which pixel is the nearest.
    if (backend == Backend::cv2) scale = 1 / (axis.size / (axis.span > 0 ? axis.span : axis.length));
  }
};

/// Room for `per_pixel` taps a pixel, or for all the source has.
void prepare(const Axis& axis, const Grid& grid, int per_pixel, Taps& taps) {
  taps.count = taps.open ? per_pixel : std::min(per_pixel, axis.length);
  taps.length = axis.length;
  taps.start.assign(static_cast<size_t>(grid.count), 0);
  taps.weights.assign(static_cast<size_t>(grid.count) * static_cast<size_t>(taps.count), 0.0F);
}

/// Adds weights for the source pixels from `from` on, which may lie outside: the border stands in for what is beyond.
void put(const Axis& axis, int i, int from, const double* weights, int count, Taps& taps) {
  const int start = taps.open ? from : std::clamp(from, 0, axis.length - taps.count);
  taps.start[static_cast<size_t>(i)] = start;
  float* out = taps.weights.data() + static_cast<size_t>(i) * static_cast<size_t>(taps.count);
  for (int k = 0; k < count; ++k) {
    const int at = taps.open ? k : std::clamp(std::clamp(from + k, 0, axis.length - 1) - start, 0, taps.count - 1);
    out[at] += static_cast<float>(weights[k]);
  }
}

void plan_nearest(const Axis& axis, const Grid& grid, const ResizeMethod& method, Taps& taps) {
  prepare(axis, grid, 1, taps);
  const double one = 1;
  double stepped = grid.begin + grid.scale * 0.5;  // Pillow adds step by step, and so must we
  for (int i = -grid.first; i < grid.count; ++i, stepped += grid.scale) {
    const double at = method.backend == Backend::pil ? stepped : grid.begin + (grid.first + i) * grid.scale;
    if (i >= 0) put(axis, i, static_cast<int>(std::floor(at)), &one, 1, taps);
  }
}

/// Pillow: the filter is as wide as the shrinking asks, its weights normalised over the pixels that exist.
void plan_antialiased(const Axis& axis, const Grid& grid, const ResizeMethod& method, Taps& taps) {
  const double stretch = std::max(grid.scale, 1.0);
  const double support = support_of(method) * stretch;
  prepare(axis, grid, static_cast<int>(std::ceil(support)) * 2 + 1, taps);
  std::vector<double> weights;
  for (int i = 0; i < grid.count; ++i) {
    const double centre = grid.begin + (grid.first + i + 0.5) * grid.scale;
    const double left = centre - support + 0.5, right = centre + support + 0.5;  // of which the whole part counts
    const int low = std::max(0, static_cast<int>(left)), high = std::min(axis.length, static_cast<int>(right));
    weights.clear();
    double sum = 0;
    for (int k = low; k < high; ++k) {
      weights.push_back(filter((k - centre + 0.5) / stretch, method));
      sum += weights.back();
    }
    for (double& weight : weights) weight = std::round(weight / (sum != 0 ? sum : 1) * 0x1p22) * 0x1p-22;  // as Pillow
    put(axis, i, low, weights.data(), static_cast<int>(weights.size()), taps);
  }
}

/// OpenCV keeps its weights in 11 bits.
double rounded(double weight) {
  return std::nearbyint(static_cast<float>(weight) * 2048.0F) / 2048;
}

/// OpenCV: the 2 or 4 nearest pixels, however far apart the new ones are.
void plan_sparse(const Axis& axis, const Grid& grid, const ResizeMethod& method, Taps& taps) {
  const int half = static_cast<int>(support_of(method)), count = 2 * half;
  prepare(axis, grid, count, taps);
  for (int i = 0; i < grid.count; ++i) {
    const float at = static_cast<float>(grid.begin + (grid.first + i + 0.5) * grid.scale - 0.5);
    const int base = static_cast<int>(std::floor(at));
    const double share = at - static_cast<float>(base);
    double weights[4] = {};
    double sum = 0;
    for (int k = 0; k < count; ++k) sum += weights[k] = filter(k - (half - 1) - share, method);
    for (int k = 0; k < count; ++k) weights[k] = rounded(weights[k] / sum);
    put(axis, i, base - (half - 1), weights, count, taps);
  }
}

void plan_axis(const Axis& axis, const ResizeMethod& method, Taps& taps) {
  const Grid grid(axis, method.backend);
  if (method.interpolation == Interpolation::nearest) return plan_nearest(axis, grid, method, taps);
  if (method.backend == Backend::pil) return plan_antialiased(axis, grid, method, taps);
  plan_sparse(axis, grid, method, taps);
}

Arithmetic arithmetic_of(const ResizeMethod& method) {
  if (method.interpolation == Interpolation::nearest) return Arithmetic::nearest;
  if (method.backend == Backend::pil) return Arithmetic::stepwise;
  return method.interpolation == Interpolation::bilinear ? Arithmetic::bilinear : Arithmetic::floats;
}

}  // namespace

void Taps::mirror() {
  std::reverse(start.begin(), start.end());
  std::reverse(weights.begin(), weights.end());
  for (auto group = weights.begin(); group != weights.end(); group += count) std::reverse(group, group + count);
}

int Taps::begin() const {
  return std::max(0, *std::min_element(start.begin(), start.end()));
}

int Taps::end() const {
  return std::min(length, *std::max_element(start.begin(), start.end()) + count);
}

void make_plan(const Axis& x, const Axis& y, const ResizeMethod& method, Plan& plan) {
  plan.arithmetic = arithmetic_of(method);
  plan.x.open = false;
  plan.y.open = plan.arithmetic == Arithmetic::bilinear;
  plan_axis(x, method, plan.x);
  plan_axis(y, method, plan.y);
}

}  // namespace trireme::image
