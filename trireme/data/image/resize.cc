#include "trireme/data/image/resize.h"

#include "trireme/data/image/taps.h"

namespace trireme::image {

void resize(const View& source, Size size, const ResizeMethod& method, Image& out) {
  thread_local Plan plan;
  make_plan({.length = source.width, .size = size.width}, {.length = source.height, .size = size.height}, method, plan);
  resample(source, {0, 0, source.width, source.height}, plan, out);
}

}  // namespace trireme::image
