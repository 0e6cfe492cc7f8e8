#include "trireme/data/mnist.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/plugin.h"
#include "trireme/core/text.h"
#include "trireme/data/image/idx.h"

namespace trireme::data {
namespace {

using std::filesystem::path;

constexpr int kClasses = 10;

std::optional<path> plain_or_gzip(const path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    std::error_code ignored;
    if (const path file = folder / (name + suffix); std::filesystem::is_regular_file(file, ignored)) return file;
  }
  return std::nullopt;
}

path require(const path& folder, const std::string& name) {
  if (const auto file = plain_or_gzip(folder, name)) return *file;
  throw UsageError("{}: there is no {} and no {}.gz in this folder", folder.string(), name, name);
}

LabelledImages read(const path& folder, Split split) {
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const path images = require(folder, prefix + "-images-idx3-ubyte");
  const path labels = require(folder, prefix + "-labels-idx1-ubyte");
  return read_labelled_images(images, labels, kClasses);
}

std::array<float, 256> pixel_values(const MnistOptions& options) {
  if (!(options.std > 0)) throw UsageError("Mnist: std is {}; it must be above 0", options.std);
  std::array<float, 256> values;
  for (size_t byte = 0; byte < values.size(); ++byte)
    values[byte] = static_cast<float>((static_cast<double>(byte) / 255 - options.mean) / options.std);
  return values;
}

bool has_mnist(const path& folder) {
  return plain_or_gzip(folder, "train-images-idx3-ubyte").has_value();
}

/// The folders of Debian's package and of Trireme: beside this program, in the installation whose libraries it uses, or at
/// the prefix for which Trireme was built.
std::vector<path> usual_places() {
  std::vector<path> places = {"/usr/share/datasets/fashion-mnist"};
  std::error_code failed;
  if (const path program = std::filesystem::read_symlink("/proc/self/exe", failed); !failed)
    places.push_back(program.parent_path().parent_path() / "share/trireme/fashion-mnist");
  for (const std::string& libraries : library_folders()) {
    const path place = (path(libraries) / TRIREME_SHARE_FROM_LIBRARIES "/fashion-mnist").lexically_normal();
    if (std::filesystem::is_directory(place, failed)) places.push_back(place);
  }
  places.emplace_back(TRIREME_SHARE_DIR "/fashion-mnist");
  return places;
}

path first_of(const std::vector<path>& places, const std::string& advice) {
  std::vector<std::string> names;
  for (const path& place : places) {
    if (has_mnist(place)) return place;
    names.push_back(place.string());
  }
  throw UsageError("Fashion-MNIST (train-images-idx3-ubyte and so on, plain or .gz) is in none of {}; {}",
                   join(names, ", "), advice);
}

}  // namespace

Mnist::Mnist(const path& folder, const MnistOptions& options)
    : images_(std::make_shared<const LabelledImages>(read(folder, options.split))), pixel_(pixel_values(options)) {}

int64_t Mnist::size() const {
  return images_->images.shape[0];
}

Sample Mnist::get(int64_t index) const {
  const Batch one = batch({&index, 1});
  return {one.data[0], one.target[0]};
}

Batch Mnist::batch(std::span<const int64_t> indices) const {
  const auto& shape = images_->images.shape;
  const auto bytes = images_->images.elements();
  const auto labels = images_->labels.elements();
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t pixels = shape[1] * shape[2];
  Batch batch{torch::empty({count, 1, shape[1], shape[2]}), torch::empty({count}, torch::kInt64)};
  auto* out = batch.data.data_ptr<float>();
  auto* target = batch.target.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(), "sample ", index, " of a dataset of ", size());
    const auto image = bytes.subspan(static_cast<size_t>(index * pixels), static_cast<size_t>(pixels));
    out = std::transform(image.begin(), image.end(), out, [this](uint8_t byte) { return pixel_[byte]; });
    *target++ = labels[static_cast<size_t>(index)];
  }
  return batch;
}

path FashionMnist::find() {
  if (const auto folder = env::get_nonempty("TRIREME_DATA_DIR"))
    return first_of({path(*folder) / "fashion-mnist", *folder}, "set TRIREME_DATA_DIR to where it is, or unset it");
  return first_of(usual_places(), "install the package dataset-fashion-mnist, or set TRIREME_DATA_DIR to where it is");
}

}  // namespace trireme::data
