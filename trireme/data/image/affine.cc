#include "trireme/data/image/affine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "trireme/data/image/simd.h"

namespace trireme::image {
namespace {

int clamped(int at, int length) {
  return std::clamp(at, 0, length - 1);
}

struct Nearest {
  void operator()(const Image& image, double x, double y, uint8_t* out) const {
    std::memcpy(out, image.row(static_cast<int>(y)) + static_cast<int>(x) * kChannels, kChannels);
  }
};

/// The four columns or rows about a place, those beyond the border replaced by the border, and the share past the
/// second.
struct Near {
  int at[4];
  double share;

  Near(double place, int length) {
    const double middle = place - 0.5;
    const int base = static_cast<int>(std::floor(middle));
    share = middle - base;
    for (int k = 0; k < 4; ++k) at[k] = clamped(base - 1 + k, length);
  }
};

[[gnu::always_inline]] inline Double4 load(const uint8_t* row, int column) {
  return __builtin_convertvector(load_pixel(row + static_cast<ptrdiff_t>(column) * kChannels), Double4);
}

/// Cut, not rounded, as Pillow does.
[[gnu::always_inline]] inline void store(const Double4& pixel, uint8_t* out) {
  for (int c = 0; c < kChannels; ++c) out[c] = static_cast<uint8_t>(std::clamp(pixel[c], 0.0, 255.0));
}

struct Bilinear {
  [[gnu::always_inline]] void operator()(const Image& image, double x, double y, uint8_t* out) const {
    const Near columns(x, image.width), rows(y, image.height);
    const auto across = [&](int row) {
      const uint8_t* from = image.row(rows.at[row]);
      const Double4 left = load(from, columns.at[1]);
      return left + (load(from, columns.at[2]) - left) * columns.share;
    };
    const Double4 upper = across(1);
    store(upper + (across(2) - upper) * rows.share, out);
  }
};

/// Through the two middle ones of four values, at a share `d` between them; Pillow's transforms use a slope of -1.
[[gnu::always_inline]] inline Double4 cubic(const Double4& v1, const Double4& v2, const Double4& v3, const Double4& v4,
                                            double d) {
  return v2 + d * (v3 - v1 + d * (2.0 * (v1 - v2) + v3 - v4 + d * (v2 - v1 - v3 + v4)));
}

struct Bicubic {
  [[gnu::always_inline]] void operator()(const Image& image, double x, double y, uint8_t* out) const {
    const Near columns(x, image.width), rows(y, image.height);
    Double4 across[4];
    for (int k = 0; k < 4; ++k) {
      const uint8_t* from = image.row(rows.at[k]);
      across[k] = cubic(load(from, columns.at[0]), load(from, columns.at[1]), load(from, columns.at[2]),
                        load(from, columns.at[3]), columns.share);
    }
    store(cubic(across[0], across[1], across[2], across[3], rows.share), out);
  }
};

template <typename Sample>
[[gnu::always_inline]] inline void transform(const Image& image, const Matrix& m, const AffineOptions& options,
                                             const Sample& sample, Image& out) {
  for (int row = 0; row < image.height; ++row) {
    uint8_t* to = out.row(row);
    for (int column = 0; column < image.width; ++column, to += kChannels) {
      const double x = m.xx * (column + 0.5) + m.xy * (row + 0.5) + m.x0;
      const double y = m.yx * (column + 0.5) + m.yy * (row + 0.5) + m.y0;
      if (x < 0 || x >= image.width || y < 0 || y >= image.height)
        std::copy(options.fill.begin(), options.fill.end(), to);
      else
        sample(image, x, y, to);
    }
  }
}

TRIREME_WIDE void transform_nearest(const Image& image, const Matrix& m, const AffineOptions& options, Image& out) {
  transform(image, m, options, Nearest{}, out);
}

TRIREME_WIDE void transform_bilinear(const Image& image, const Matrix& m, const AffineOptions& options, Image& out) {
  transform(image, m, options, Bilinear{}, out);
}

TRIREME_WIDE void transform_bicubic(const Image& image, const Matrix& m, const AffineOptions& options, Image& out) {
  transform(image, m, options, Bicubic{}, out);
}

}  // namespace

void affine(Image& image, const Matrix& matrix, const AffineOptions& options) {
  thread_local Image spare;
  spare.reshape(image.width, image.height);
  image.pixels.push_back(0);  // the last pixel is read with the byte behind it
  if (options.interpolation == Interpolation::nearest)
    transform_nearest(image, matrix, options, spare);
  else if (options.interpolation == Interpolation::bilinear)
    transform_bilinear(image, matrix, options, spare);
  else
    transform_bicubic(image, matrix, options, spare);
  std::swap(image, spare);
}

void rotate(Image& image, double degrees, const AffineOptions& options) {
  if (std::fmod(degrees, 360) == 0) return;
  const double angle = -degrees * std::numbers::pi / 180;
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const double x = image.width / 2.0, y = image.height / 2.0;
  affine(image, {cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y}, options);
}

}  // namespace trireme::image
