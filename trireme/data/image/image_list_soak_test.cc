// The length of ImageNet-22k: a list of 14 million lines loads in under 30 s and 1.5 GB.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>

#include "trireme/core/file.h"
#include "trireme/data/image/image_list.h"

namespace trireme::data {
namespace {

constexpr int64_t kLines = 14'000'000;
constexpr int64_t kClasses = 21'841;

void write_list(const std::filesystem::path& file) {
  std::ofstream out(file);
  for (int64_t i = 0; i < kLines; ++i) {
    const int64_t label = i % kClasses;
    out << fmt::format("n{:08}/n{:08}_{}.JPEG {}\n", label, label, i, label);
  }
}

/// The most this process has had in memory so far.
int64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(ImageListSoak, FourteenMillionLines) {
  const TempDir folder;
  const auto file = folder.path() / "list.txt";
  write_list(file);
  const auto before = std::chrono::steady_clock::now();
  const ImageList list = read_image_list(file, {.class_num = kClasses});
  const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - before);
  EXPECT_EQ(list.size(), kLines);
  EXPECT_EQ(list.label(kLines - 1), (kLines - 1) % kClasses);
  EXPECT_LT(took.count(), 30);
  EXPECT_LT(peak_bytes(), 1'500'000'000);
  RecordProperty("seconds", std::to_string(took.count()));
  RecordProperty("peak_bytes", std::to_string(peak_bytes()));
}

}  // namespace
}  // namespace trireme::data
