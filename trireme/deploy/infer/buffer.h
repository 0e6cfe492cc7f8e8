// Floats that begin where vector instructions and engines like it: at a multiple of 64 bytes.
//
//   Buffer images(8 * predictor.input_elements());
//   for (size_t i = 0; i < 8; ++i) predictor.preprocess(files[i], images.part(i, 8));
//
// What they hold is unspecified until written. Moves, does not copy; one thread at a time, as a vector.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace trireme::infer {

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  explicit Buffer(size_t size)
      : data_(static_cast<float*>(::operator new(size * sizeof(float), std::align_val_t(kAlignment)))), size_(size) {}

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<float> view() { return {data(), size_}; }
  std::span<const float> view() const { return {data(), size_}; }
  /// The i-th of `count` equal parts.
  std::span<float> part(size_t i, size_t count) { return view().subspan(i * (size_ / count), size_ / count); }
  std::span<const float> part(size_t i, size_t count) const {
    return view().subspan(i * (size_ / count), size_ / count);
  }

 private:
  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t(kAlignment)); }
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

}  // namespace trireme::infer
