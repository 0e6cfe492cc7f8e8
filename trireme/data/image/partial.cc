#include "trireme/data/image/partial.h"

#include "trireme/data/image/taps.h"

namespace trireme::image {
namespace {

int divided_up(int x, int denominator) {
  return (x + denominator - 1) / denominator;
}

/// The whole pixels of the smaller picture that the part touches.
Region shrunk(const Region& part, int denominator) {
  const int x = part.x / denominator, y = part.y / denominator;
  return {x, y, divided_up(part.x + part.width, denominator) - x, divided_up(part.y + part.height, denominator) - y};
}

/// Along one axis: the part from `at` on of `length` pixels, of which `touched` whole ones from `first` on are there.
Axis axis_of(int at, int length, int first, int touched, int denominator) {
  Axis axis{.length = touched};
  axis.begin = static_cast<double>(at) / denominator - first;
  axis.span = static_cast<double>(length) / denominator;
  return axis;
}

}  // namespace

int best_denominator(const ResizedPart& wanted) {
  for (const int denominator : {8, 4, 2})
    if (wanted.part.width >= denominator * wanted.size.width && wanted.part.height >= denominator * wanted.size.height)
      return denominator;
  return 1;
}

void read_resized(JpegReader& reader, const ResizedPart& wanted, Image& out) {
  thread_local Image decoded;
  thread_local Plan plan;
  const int denominator = wanted.scaled ? best_denominator(wanted) : 1;
  const Region part = shrunk(wanted.part, denominator);
  Axis x = axis_of(wanted.part.x, wanted.part.width, part.x, part.width, denominator);
  Axis y = axis_of(wanted.part.y, wanted.part.height, part.y, part.height, denominator);
  x.size = wanted.size.width, x.first = wanted.window.x, x.count = wanted.window.width;
  y.size = wanted.size.height, y.first = wanted.window.y, y.count = wanted.window.height;
  make_plan(x, y, wanted.method, plan);
  const Region needed{part.x + plan.x.begin(), part.y + plan.y.begin(), plan.x.end() - plan.x.begin(),
                      plan.y.end() - plan.y.begin()};
  if (wanted.mirrored) plan.x.mirror();
  Region got = reader.read(needed, denominator, decoded);
  got.x -= part.x;
  got.y -= part.y;
  resample(view_of(decoded), got, plan, out);
}

}  // namespace trireme::image
