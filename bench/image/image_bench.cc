// How many pictures a second one thread turns from JPEG into the tensor a network trains or is evaluated on.
//
//   image_bench SECONDS WHAT RESULT FILE…
//
// WHAT is train (random crop 224, flip, normalise), train-full (the same, every picture decoded as a whole), eval
// (short side 256, middle 224, normalise) or pphgnet (bicubic by Pillow's rules and RandAugment). Prints `pictures
// seconds` and writes the tensor of the first file, evaluated, into RESULT.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/data/image/pipeline.h"

namespace {

using namespace trireme::image;
using Clock = std::chrono::steady_clock;

Transforms transforms_of(const std::string& what) {
  const ResizeMethod pil{Interpolation::bicubic, Backend::pil};
  if (what == "train") return Transforms({RandCropImage{}, RandFlipImage{}, NormalizeImage{}});
  if (what == "train-full")
    return Transforms({RandCropImage{}, RandFlipImage{}, NormalizeImage{}}, {.decoding = Decoding::full});
  if (what == "eval") return Transforms({ResizeImage{.resize_short = 256}, CropImage{}, NormalizeImage{}});
  if (what == "pphgnet")
    return Transforms(
        {RandCropImage{.method = pil}, RandFlipImage{}, TimmAutoAugment{.config_str = "rand-m7-mstd0.5-inc1"},
         NormalizeImage{},
         RandomErasing{
             .EPSILON = 0.25, .sh = 1.0 / 3, .attempt = 10, .use_log_aspect = true, .mode = ErasePixels::pixel}});
  throw trireme::UsageError("{}: not one of train, train-full, eval, pphgnet", what);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) return std::puts("usage: image_bench SECONDS WHAT RESULT FILE…"), 2;
  const double limit = std::atof(words[1]);
  const Transforms transforms = transforms_of(words[2]);
  std::vector<std::string> files;
  for (int i = 4; i < count; ++i) files.push_back(trireme::read_file(words[i]).value());

  std::vector<float> tensor(transforms.elements());
  uint64_t done = 0;
  const auto run_all = [&] {
    for (const std::string& bytes : files) {
      Random random({1, done++});
      transforms.run(bytes, random, tensor.data());
    }
  };
  run_all();
  done = 0;
  const auto begin = Clock::now();
  while (seconds_since(begin) < limit) run_all();
  std::printf("%llu %.6f\n", static_cast<unsigned long long>(done), seconds_since(begin));

  Random random(0);
  const Transforms evaluation = transforms_of("eval");
  evaluation.run(files[0], random, tensor.data());
  std::ofstream(words[3], std::ios::binary)
      .write(reinterpret_cast<const char*>(tensor.data()), static_cast<std::streamsize>(tensor.size() * sizeof(float)));
  return 0;
}
