// MNIST and the datasets of its kind: grey images with one of ten labels, in four IDX files.
//
//   data::Mnist digits("data");                                        // 60000 samples: float 1 x 28 x 28, int64
//   data::Mnist test("data", {.split = data::Split::test, .mean = 0.1307, .std = 0.3081});
//   data::FashionMnist clothes({.split = data::Split::train});         // wherever it is found
#pragma once

#include <array>
#include <filesystem>
#include <memory>

#include "trireme/data/dataset.h"

namespace trireme::data {

struct LabelledImages;

enum class Split { train, test };

struct MnistOptions {
  Split split = Split::train;
  double mean = 0;  ///< a pixel is (value / 255 - mean) / std
  double std = 1;
};

/// A small value: copies share the images.
class Mnist : public Dataset {
 public:
  using Dataset::batch;
  using Dataset::get;
  /// Reads {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, each plain or as .gz. Throws UsageError
  /// that names the file for one that is missing, damaged, or does not belong to the other, and for a std of 0.
  explicit Mnist(const std::filesystem::path& folder, const MnistOptions& options = {});

  int64_t size() const override;
  Sample get(int64_t index) const override;
  Batch batch(std::span<const int64_t> indices) const override;

 private:
  std::shared_ptr<const LabelledImages> images_;
  std::array<float, 256> pixel_;  // what each byte becomes
};

/// Zalando's images of clothes: as large as MNIST, and harder.
class FashionMnist : public Mnist {
 public:
  explicit FashionMnist(const MnistOptions& options = {}) : Mnist(find(), options) {}

  /// The folder to read, the first of: fashion-mnist/ in $TRIREME_DATA_DIR, or that folder itself; Debian's package
  /// dataset-fashion-mnist; the 5000 + 1000 images that come with Trireme, in whatever prefix it is. Throws UsageError if $TRIREME_DATA_DIR is
  /// set but does not have it, rather than train on something else, and if there is none.
  static std::filesystem::path find();
};

}  // namespace trireme::data
