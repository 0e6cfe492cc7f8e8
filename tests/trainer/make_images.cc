// make_images FOLDER COUNT CLASSES SIZE: small JPEGs whose colour tells their class, and list.txt with `path label`.
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trireme/data/image/test_images.h"

namespace {

using trireme::image::Image;

constexpr int kColours = 7;
constexpr int kStripe = 8;

/// Waves, of which each class keeps another share of red, green and blue; from class 7 on with dark stripes besides.
Image picture(int number, int label, int size) {
  Image image = trireme::image::waves(size, size, number);
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size * trireme::image::kChannels; ++x) {
      const bool is_dark = label >= kColours && x / trireme::image::kChannels / kStripe % 2 == 1;
      const bool kept = !is_dark && ((label % kColours + 1) >> (x % trireme::image::kChannels) & 1);
      uint8_t& value = image.row(y)[x];
      value = static_cast<uint8_t>(kept ? 128 + value / 2 : value / 4);
    }
  return image;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::filesystem::path folder = argv[1];
  const int count = std::atoi(argv[2]), classes = std::atoi(argv[3]), size = std::atoi(argv[4]);
  std::filesystem::create_directories(folder);
  std::ofstream list(folder / "list.txt");
  for (int i = 0; i < count; ++i) {
    const int label = i % classes;
    const std::string name = fmt::format("{}.jpg", i);
    const std::string bytes = trireme::image::jpeg_of(picture(i, label, size));
    std::ofstream(folder / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    list << name << ' ' << label << '\n';
  }
  return list.good() ? 0 : 1;
}
