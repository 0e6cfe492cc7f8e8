#include "trireme/tipc/lite_data.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"
#include "trireme/tipc/outdated.h"
#include "trireme/tipc/png_file.h"

namespace trireme::tipc {
namespace {

namespace fs = std::filesystem;

/// Their bytes by their names in the folder.
using Files = std::map<std::string, std::string>;

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

// --- MNIST's files: a header of big-endian numbers, then bytes

/// The mean of red, green and blue.
std::string grey(const std::vector<uint8_t>& pixels) {
  std::string bytes;
  for (size_t i = 0; i + 2 < pixels.size(); i += 3)
    bytes += static_cast<char>((pixels[i] + pixels[i + 1] + pixels[i + 2]) / 3);
  return bytes;
}

void add_idx(Files& files, const std::string& name, int first, const LiteData& data) {
  constexpr uint32_t kImages = 0x803, kLabels = 0x801, kSide = 28;
  const auto count = static_cast<uint32_t>(data.images);
  std::string images = big_endian({kImages, count, kSide, kSide}), labels = big_endian({kLabels, count});
  for (int i = 0; i < data.images; ++i) {
    const int label = i % data.classes;
    images += grey(picture(first + i, label, {.width = kSide, .height = kSide}));
    labels += static_cast<char>(label);
  }
  files[name + "-images-idx3-ubyte"] = images;
  files[name + "-labels-idx1-ubyte"] = labels;
}

/// One half: DIR/000.png … and DIR_list.txt.
void add_split(Files& files, const std::string& name, int first, const LiteData& data) {
  std::string list;
  for (int i = 0; i < data.images; ++i) {
    const int label = i % data.classes;
    const std::string file = file_name(name, i);
    files[file] =
        png_of(static_cast<uint32_t>(data.width), static_cast<uint32_t>(data.height), picture(first + i, label, data));
    list += fmt::format("{} {}\n", file, label);
  }
  files[name + "_list.txt"] = list;
}

Files files_of(const LiteData& data) {
  Files files;
  add_split(files, "train", 0, data);
  add_split(files, "val", data.images, data);
  add_idx(files, "train", 0, data);
  add_idx(files, "t10k", data.images, data);
  return files;
}

// --- the mark: a line for each file that was made

using Lines = std::set<std::string>;
constexpr const char* kTitle = "Made by `trireme tipc prepare`: name, size and check sum.";

std::string mark_line(const std::string& name, std::string_view bytes) {
  return fmt::format("{} {} {:08x}", name, bytes.size(), crc32(bytes));
}

Lines mark_lines(const Files& files) {
  Lines lines;
  for (const auto& [name, bytes] : files) lines.insert(mark_line(name, bytes));
  return lines;
}

Lines read_mark(const fs::path& folder) {
  Lines lines;
  for (const std::string& line : split(read_file(lite_data_mark(folder)).value_or(""), '\n'))
    if (!line.empty() && line != kTitle) lines.insert(line);
  return lines;
}

void write_mark(const fs::path& folder, const Lines& lines) {
  std::string text = std::string(kTitle) + "\n";
  for (const std::string& line : lines) text += line + "\n";
  write_file_atomically(lite_data_mark(folder), text);
}

std::set<std::string> names_in(const Lines& lines) {
  std::set<std::string> names;
  for (const std::string& line : lines) names.insert(line.substr(0, line.find(' ')));
  return names;
}

/// A mark that was not written here may name any file, and links may lead to it.
void refuse_outside(const fs::path& folder, const std::string& name) {
  if (fs::path(name).lexically_normal() == name && !leads_out(folder, folder / name)) return;
  throw UsageError(
      "{} names '{}', which leads out of {}: that was not made by `trireme tipc prepare`, and all is left alone. Move "
      "the folder away",
      lite_data_mark(folder).string(), printable(name), folder.string());
}

/// A data set may have been copied over what was made.
void refuse_others(const fs::path& folder, const Lines& made) {
  constexpr size_t kMaxPictureBytes = 64u << 20;
  std::error_code ignored;
  for (const std::string& name : names_in(made)) {
    const fs::path file = folder / name;
    refuse_outside(folder, name);
    const fs::file_status status = fs::symlink_status(file, ignored);
    if (!fs::exists(status)) continue;
    const auto bytes =
        fs::is_regular_file(status) ? read_head(file, kMaxPictureBytes) : std::nullopt;  // a pipe would not end
    if (bytes && made.contains(mark_line(name, *bytes))) continue;
    throw UsageError(
        "{} is not what `trireme tipc prepare` made: all is left alone. Is the data yours? Then remove {}; else remove "
        "that file",
        file.string(), lite_data_mark(folder).string());
  }
}

}  // namespace

fs::path lite_data_mark(const fs::path& folder) {
  return folder / "made_by_trireme_tipc";
}

DataState data_state(const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_regular_file(lite_data_mark(folder), ignored)) return DataState::lite;
  const bool something =
      fs::exists(folder, ignored) && !(fs::is_directory(folder, ignored) && fs::is_empty(folder, ignored));
  return something ? DataState::other : DataState::absent;
}

void make_lite_data(const fs::path& folder, const LiteData& data) {
  if (data_state(folder) == DataState::other)
    throw UsageError(
        "{} is there and was not made by `trireme tipc prepare`: it is left alone. Run the chain in another folder, or "
        "move it away",
        folder.string());
  const Files files = files_of(data);
  const Lines now = mark_lines(files), before = read_mark(folder);
  Lines both = before;
  both.insert(now.begin(), now.end());
  make_folder(folder);
  refuse_others(folder, both);
  // Until all is there, the mark tells of both: for whoever comes after an end halfway, and for another machine that
  // makes the same in the same folder.
  write_mark(folder, both);
  for (const auto& [name, bytes] : files) {
    make_folder((folder / name).parent_path());
    write_file_atomically(folder / name, bytes, {.durable = false});
  }
  for (const std::string& name : names_in(before))
    if (!files.contains(name)) remove_inside(folder, folder / name);
  write_mark(folder, now);
}

}  // namespace trireme::tipc
