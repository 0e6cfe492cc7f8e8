#include "trireme/tipc/lite_data.h"

#include <fmt/core.h>

#include <cstdlib>
#include <initializer_list>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/tipc/png_file.h"

namespace trireme::tipc {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "made_by_trireme_tipc";

void make_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw SystemError(failed.value(), "cannot make the folder {}", folder.string());
}

/// Waves, shifted by the picture's number; each class keeps another share of red, green and blue.
std::vector<uint8_t> picture(int number, int label, const LiteData& data) {
  constexpr int kPeriod = 48;
  std::vector<uint8_t> pixels;
  for (int y = 0; y < data.height; ++y)
    for (int x = 0; x < data.width; ++x)
      for (int channel = 0; channel < 3; ++channel) {
        const int wave = std::abs((x + y * channel + 17 * number) % kPeriod * 2 - kPeriod) * 255 / kPeriod;
        const bool kept = (label + 1) >> channel & 1;
        pixels.push_back(static_cast<uint8_t>(kept ? 128 + wave / 2 : wave / 4));
      }
  return pixels;
}

std::string file_name(const std::string& name, int number) {
  return fmt::format("{}/{:03}.png", name, number);
}

/// Of a larger set before. Another machine may be making the same in the same folder: nothing else is removed.
void remove_surplus(const fs::path& folder, const std::string& name, int from) {
  std::error_code ignored;
  for (int i = from; fs::remove(folder / file_name(name, i), ignored); ++i) {
  }
}

// --- MNIST's files: a header of big-endian numbers, then bytes

std::string big_endian(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers)
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

/// The mean of red, green and blue.
std::string grey(const std::vector<uint8_t>& pixels) {
  std::string bytes;
  for (size_t i = 0; i + 2 < pixels.size(); i += 3)
    bytes += static_cast<char>((pixels[i] + pixels[i + 1] + pixels[i + 2]) / 3);
  return bytes;
}

void make_idx(const fs::path& folder, const std::string& name, int first, const LiteData& data) {
  constexpr uint32_t kImages = 0x803, kLabels = 0x801, kSide = 28;
  const auto count = static_cast<uint32_t>(data.images);
  std::string images = big_endian({kImages, count, kSide, kSide}), labels = big_endian({kLabels, count});
  for (int i = 0; i < data.images; ++i) {
    const int label = i % data.classes;
    images += grey(picture(first + i, label, {.width = kSide, .height = kSide}));
    labels += static_cast<char>(label);
  }
  write_file_atomically(folder / (name + "-images-idx3-ubyte"), images, {.durable = false});
  write_file_atomically(folder / (name + "-labels-idx1-ubyte"), labels, {.durable = false});
}

/// One half: DIR/000.png … and DIR_list.txt.
void make_split(const fs::path& folder, const std::string& name, int first, const LiteData& data) {
  make_folder(folder / name);
  std::string list;
  for (int i = 0; i < data.images; ++i) {
    const int label = i % data.classes;
    const std::string file = file_name(name, i);
    const std::string bytes =
        png_of(static_cast<uint32_t>(data.width), static_cast<uint32_t>(data.height), picture(first + i, label, data));
    write_file_atomically(folder / file, bytes, {.durable = false});
    list += fmt::format("{} {}\n", file, label);
  }
  write_file_atomically(folder / (name + "_list.txt"), list, {.durable = false});
  remove_surplus(folder, name, data.images);
}

}  // namespace

DataState data_state(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kMark, ignored)) return DataState::lite;
  const bool something = fs::exists(folder, ignored) && !(fs::is_directory(folder) && fs::is_empty(folder, ignored));
  return something ? DataState::other : DataState::absent;
}

void make_lite_data(const fs::path& folder, const LiteData& data) {
  if (data_state(folder) == DataState::other)
    throw UsageError(
        "{} is there and was not made by `trireme tipc prepare`: it is left alone. Run the chain in another folder, or "
        "move it away",
        folder.string());
  make_folder(folder);
  write_file_atomically(folder / kMark, "The pictures in this folder are made by `trireme tipc prepare`.\n");
  make_split(folder, "train", 0, data);
  make_split(folder, "val", data.images, data);
  make_idx(folder, "train", 0, data);
  make_idx(folder, "t10k", data.images, data);
}

}  // namespace trireme::tipc
