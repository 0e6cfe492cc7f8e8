// Depthwise convolution of one channels-last image: every channel by a kernel of its own. One thread, SIMD over the
// channels, chosen at run time.
//
// The input lies in a frame: an image with `pad` rows and columns of zeros on every side, so that no pixel is special.
#pragma once

#include <cstdint>

namespace trireme::nn::kernels {

struct Depthwise {
  int64_t height = 0;  ///< of the input, without the frame
  int64_t width = 0;
  int64_t channels = 0;
  int64_t kernel = 3;  ///< odd
  int64_t stride = 1;

  int64_t pad() const { return (kernel - 1) / 2; }
  int64_t frame_height() const { return height + 2 * pad(); }
  int64_t frame_width() const { return width + 2 * pad(); }
  int64_t frame_size() const { return frame_height() * frame_width() * channels; }
  int64_t out_height() const { return (height - 1) / stride + 1; }
  int64_t out_width() const { return (width - 1) / stride + 1; }
  int64_t out_size() const { return out_height() * out_width() * channels; }
  /// Of the pixel (y, x) in the frame.
  int64_t inside(int64_t y, int64_t x) const { return ((y + pad()) * frame_width() + x + pad()) * channels; }
};

/// out = the convolution of the frame. `weights` are [kernel][kernel][channels].
void depthwise_forward(const float* frame, const float* weights, const Depthwise& shape, float* out);

/// Adds to the gradient of the weights, [kernel][kernel][channels].
void add_depthwise_weight_gradient(const float* frame, const float* dy, const Depthwise& shape, float* gradient);

/// Adds to the gradient of the frame, which the caller has filled with zeros.
void add_depthwise_input_gradient(const float* dy, const float* weights, const Depthwise& shape, float* frame);

}  // namespace trireme::nn::kernels
