// Which source pixels make up one new pixel along one axis, and with what weights: the plan of a resize.
//
// Words: the source has `length` pixels along the axis, the result `size`; of these we make a window, from `first` on.
// Every new pixel i of the window reads `count` neighbouring source pixels from start[i] on with the weights
// weight(i)[0 … count-1]; what a library would read beyond the border is already added to the border's weight. Only
// down the rows of Arithmetic::bilinear, where each row is rounded for itself, start[i] may lie outside, and the
// nearest row is meant. A part of the source in fractions of a pixel (`begin`, `span`) stands for the whole when it was
// decoded smaller.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/data/image/resize.h"

namespace trireme::image {

struct Axis {
  int length = 0;
  int size = 0;
  double begin = 0;  ///< where the part to be resized begins
  double span = 0;   ///< and its length; 0: the whole
  int first = 0;     ///< the window; count 0: everything
  int count = 0;
};

struct Taps {
  int count = 0;
  int length = 0;     ///< of the source
  bool open = false;  ///< start may lie outside
  std::vector<int> start;
  std::vector<float> weights;  ///< of one pixel: sum 1

  int size() const { return static_cast<int>(start.size()); }
  const float* weight(int i) const { return weights.data() + static_cast<size_t>(i) * static_cast<size_t>(count); }
  /// The same pixels in the reverse order.
  void mirror();
  /// The first source pixel that is read, and the one after the last.
  int begin() const;
  int end() const;
};

/// The arithmetic a plan is made for; resample.cc explains them.
enum class Arithmetic { nearest, bilinear, floats, stepwise };

struct Plan {
  Taps x;
  Taps y;
  Arithmetic arithmetic = Arithmetic::floats;
};

/// Fills `plan`, whose memory is used again. Requires lengths and sizes >= 1.
void make_plan(const Axis& x, const Axis& y, const ResizeMethod& method, Plan& plan);

/// Resizes by a plan. `source` holds the pixels from `origin` on of the source the plan was made for.
void resample(const View& source, const Region& origin, const Plan& plan, Image& out);

}  // namespace trireme::image
