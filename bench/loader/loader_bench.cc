// How many images a second a Loader gives, and what one of its threads does in that time.
//
//   loader_bench SECONDS WORKERS LIST ROOT [PACKED]        # prints images/s
//   loader_bench SECONDS stages LIST ROOT [PACKED]         # prints `stage microseconds` of one image, a line each
//
// Batches of 64: a random crop to 224 x 224, a flip, normalised.
#include <trireme/trireme.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "trireme/core/file.h"
#include "trireme/data/image/jpeg.h"
#include "trireme/data/image/normalize.h"
#include "trireme/data/image/packed.h"
#include "trireme/data/image/partial.h"

using namespace trireme;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 64;
constexpr int kSide = 224;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

image::Transforms transforms() {
  return image::Transforms({image::DecodeImage{}, image::RandCropImage{.size = {kSide, kSide}}, image::RandFlipImage{},
                            image::NormalizeImage{}});
}

struct Source {
  data::ImageList list;
  std::filesystem::path root, packed;

  data::ImageDataset dataset() const { return {list, transforms(), {.root = root, .packed = packed}}; }
};

/// After a first batch, without the start of the threads.
double images_a_second(const Source& source, double limit, int workers) {
  data::Loader loader(source.dataset(), {.batch_size = kBatch, .shuffle = true, .drop_last = true, .workers = workers});
  int64_t images = 0;
  bool warm = false;
  auto begin = Clock::now();
  while (true)
    for (auto& [x, y] : loader) {
      if (!warm) {
        warm = true;
        begin = Clock::now();
        continue;
      }
      images += x.size(0);
      if (const double seconds = seconds_since(begin); seconds > limit) return static_cast<double>(images) / seconds;
    }
}

/// Of one call of f(i), over a number of images until the time is over.
double microseconds(double limit, const std::function<void(int64_t)>& f) {
  for (int64_t i = 0; i < kBatch; ++i) f(i);
  int64_t calls = 0;
  const auto begin = Clock::now();
  while (seconds_since(begin) < limit)
    for (int64_t i = 0; i < kBatch; ++i) f(calls++);
  return 1e6 * seconds_since(begin) / static_cast<double>(calls);
}

/// What the crop of draw `i` needs of the JPEG, as Transforms decodes it.
void decode_crop(const std::string& bytes, int64_t i, image::Image& out) {
  image::Random random(static_cast<uint64_t>(i));
  image::JpegReader reader(bytes, {});
  const image::RandCropImage crop{.size = {kSide, kSide}};
  const image::ResizedPart wanted{.part = crop.sample(reader.size(), random), .size = crop.size, .scaled = true};
  const int denominator = image::best_denominator(wanted);
  const auto& part = wanted.part;
  reader.read({part.x / denominator, part.y / denominator, part.width / denominator, part.height / denominator},
              denominator, out);
}

void print_stages_of_files(const Source& source, double limit) {
  const image::Transforms all = transforms();
  std::vector<std::string> files;
  for (int64_t i = 0; i < std::min(kBatch, source.list.size()); ++i)
    files.push_back(data::read_picture(source.root / source.list.path(i)));
  const auto file = [&](int64_t i) -> const std::string& { return files[static_cast<size_t>(i) % files.size()]; };
  std::vector<float> out(all.elements());
  image::Image picture;
  picture.reshape(kSide, kSide);
  const double read = microseconds(
      limit, [&](int64_t i) { data::read_picture(source.root / source.list.path(i % source.list.size())); });
  const double normalise = microseconds(limit, [&](int64_t) { image::normalize(picture, {}, out.data()); });
  image::Image part;
  const double decode = microseconds(limit, [&](int64_t i) { decode_crop(file(i), i, part); });
  const double whole = microseconds(limit, [&](int64_t i) {
    image::Random random(static_cast<uint64_t>(i));
    all.run(file(i), random, out.data());
  });
  std::cout << fmt::format(
      "read the file {:.1f}\ndecode what the crop needs {:.1f}\nresize and flip {:.1f}\n"
      "normalise {:.1f}\n",
      read, decode, std::max(0.0, whole - decode - normalise), normalise);
}

void print_stages(const Source& source, double limit) {
  if (source.packed.empty()) print_stages_of_files(source, limit);
  const data::ImageDataset dataset = source.dataset();
  std::vector<int64_t> indices(kBatch);
  const double batch = microseconds(limit, [&](int64_t i) {
    if (i % kBatch != 0) return;  // a batch in the place of its first image
    for (int64_t k = 0; k < kBatch; ++k) indices[static_cast<size_t>(k)] = (i + k) % source.list.size();
    dataset.batch(indices);
  });
  torch::Tensor from = torch::rand({kBatch, 3, kSide, kSide}), to = torch::empty_like(from);
  const double copy = microseconds(limit, [&](int64_t i) {
    if (i % kBatch == 0) to.copy_(from);
  });
  std::cout << fmt::format(
      "a batch, all of these and its memory {:.1f}\ncopy the batch once (as to pinned memory) {:.1f}\n", batch, copy);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) throw UsageError("usage: loader_bench SECONDS WORKERS|stages LIST ROOT [PACKED]");
  torch::set_num_threads(1);
  const Source source{data::read_image_list(argv[3]), argv[4], argc > 5 ? argv[5] : ""};
  const double limit = std::stod(argv[1]);
  const std::string what = argv[2];
  if (what == "stages") {
    print_stages(source, limit);
  } else {
    std::cout << fmt::format("{:.1f}\n", images_a_second(source, limit, std::stoi(what)));
  }
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
