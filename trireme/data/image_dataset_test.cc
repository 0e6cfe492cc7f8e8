#include "trireme/data/image_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/data/batch_ops.h"
#include "trireme/data/image/packed.h"
#include "trireme/data/image/test_images.h"
#include "trireme/data/loader.h"
#include "trireme/data/wrappers.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

image::Transforms training(int size = 16) {
  return image::Transforms({image::DecodeImage{}, image::RandCropImage{.size = {size, size}}, image::RandFlipImage{},
                            image::NormalizeImage{}});
}

image::Transforms evaluation() {
  return image::Transforms({image::DecodeImage{}, image::ResizeImage{.size = {16, 16}}, image::NormalizeImage{}});
}

/// A folder of small pictures, 0.jpg, 1.png, 2.jpg … with labels 0, 1, 2 …
class Pictures : public ::testing::Test {
 protected:
  void write(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const image::Image picture = image::waves(40, 30, static_cast<int>(i));
      put(i, i % 2 == 0 ? image::jpeg_of(picture) : image::png_of(picture));
    }
  }
  static std::string name(int64_t i) { return std::to_string(i) + (i % 2 == 0 ? ".jpg" : ".png"); }
  void put(int64_t i, const std::string& bytes) {
    write_file_atomically(folder_.path() / name(i), bytes, {.durable = false});
  }
  std::filesystem::path file(int64_t i) const { return folder_.path() / name(i); }
  static ImageList list(int64_t count) {
    ImageList list;
    for (int64_t i = 0; i < count; ++i) list.add(name(i), static_cast<int32_t>(i));
    return list;
  }
  ImageDataset dataset(int64_t count, image::Transforms transforms, ImageDatasetOptions options = {}) const {
    options.root = folder_.path();
    return {list(count), std::move(transforms), options};
  }

  TempDir folder_;
};

TEST_F(Pictures, AreReadAndTransformed) {
  write(3);
  const ImageDataset images = dataset(3, evaluation());
  EXPECT_EQ(images.size(), 3);
  const Batch batch = images.batch(std::vector<int64_t>{2, 1});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{2, 3, 16, 16}));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({2, 1}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(images.get(1).data, batch.data[1]));
  std::vector<float> expected(evaluation().elements());
  image::Random random(0);
  evaluation().run(*read_file(file(1)), random, expected.data());
  EXPECT_TRUE(torch::equal(batch.data[1].flatten(), torch::tensor(expected)));
  EXPECT_THROW(images.get(3), c10::IndexError);
}

TEST_F(Pictures, MayBeInAFolderForEachClass) {
  for (const char* place : {"dog/1.png", "cat/1.png", "cat/2.png"}) {
    std::filesystem::create_directories((folder_.path() / place).parent_path());
    write_file_atomically(folder_.path() / place, image::png_of(image::waves(20, 20)), {.durable = false});
  }
  const ImageDataset images(read_image_folder(folder_.path()), evaluation(), {.root = folder_.path()});
  EXPECT_TRUE(
      torch::equal(images.batch(std::vector<int64_t>{0, 1, 2}).target, torch::tensor({0, 0, 1}, torch::kInt64)));
}

std::vector<torch::Tensor> epochs(const ImageDataset& images, int workers) {
  Loader loader(images, {.batch_size = 4, .shuffle = true, .seed = 2, .workers = workers});
  std::vector<torch::Tensor> all;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& [x, y] : loader) {
      all.push_back(x);
      all.push_back(y);
    }
  return all;
}

TEST_F(Pictures, DoNotDependOnTheWorkersEvenIfSomeAreBad) {
  write(15);
  put(3, "no picture at all");
  const CaughtLog caught;
  const auto expected = epochs(dataset(15, training()), 0);
  for (const int workers : {1, 3}) {
    const auto batches = epochs(dataset(15, training()), workers);
    ASSERT_EQ(batches.size(), expected.size());
    for (size_t i = 0; i < batches.size(); ++i) EXPECT_TRUE(torch::equal(batches[i], expected[i])) << i;
  }
}

TEST_F(Pictures, AreAugmentedDifferentlyInEachEpoch) {
  write(1);
  Loader loader(dataset(1, training()), {.batch_size = 1});
  std::vector<torch::Tensor> seen;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& [x, y] : loader) seen.push_back(x);
  EXPECT_FALSE(torch::equal(seen[0], seen[1]));
}

TEST_F(Pictures, ThatAreBadAreNamedAndReplaced) {
  write(8);
  const std::string whole = *read_file(file(2));
  put(2, whole.substr(0, whole.size() / 2));  // truncated
  put(4, "");
  std::filesystem::remove(file(6));
  CaughtLog caught;
  const ImageDataset images = dataset(8, evaluation());
  for (int round = 0; round < 2; ++round) {
    const Batch batch = images.batch(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
    for (const int64_t bad : {2, 4, 6}) {
      const auto stand_in = batch.target[bad].item<int64_t>();
      EXPECT_THAT((std::set<int64_t>{0, 1, 3, 5, 7}), ::testing::Contains(stand_in));
      EXPECT_TRUE(torch::equal(batch.data[bad], batch.data[stand_in]));
    }
  }
  EXPECT_EQ(images.bad().numbers.size(), 3u);
  ASSERT_EQ(caught.lines().size(), 3u);  // each is named once
  EXPECT_THAT(caught.lines()[0], AllOf(HasSubstr(file(2).string()), HasSubstr("1 of 8 are bad so far")));
  EXPECT_THAT(caught.lines()[2], AllOf(HasSubstr(file(6).string()), HasSubstr("No such file")));
}

TEST_F(Pictures, ThatAreBadAreLeftOutWhereThePickSaysSo) {
  write(6);
  put(1, "bad");
  put(4, "bad");
  CaughtLog caught;
  const ImageDataset images = dataset(6, evaluation());
  Pick pick = Pick::of({5, 4, 3, 2, 1, 0}, {0, 0, 0, 0, 0, 0});
  pick.leave_out_bad = true;
  const Concat twice({images, Subset(images, {4, 1}), images});
  Pick of_both = Pick::of({6, 8, 7, 5, 4, 12}, {0, 0, 0, 0, 0, 0});  // 4, 0, 1, 5, 4, 4
  of_both.leave_out_bad = true;
  const auto expect = [](const Dataset& dataset, const Pick& wanted, const std::vector<int64_t>& labels) {
    const Batch batch = dataset.batch(wanted);
    EXPECT_EQ(batch.data.size(0), static_cast<int64_t>(labels.size()));
    EXPECT_TRUE(torch::equal(batch.target, torch::tensor(labels, torch::kInt64))) << batch.target;
  };
  expect(images, pick, {5, 3, 2, 0});
  expect(Map(images, [](Sample sample) { return sample; }), pick, {5, 3, 2, 0});
  expect(BatchMap(images, [](Batch batch, uint64_t) { return batch; }), pick, {5, 3, 2, 0});
  const Cache cache(images);
  for (int round = 0; round < 2; ++round) expect(cache, pick, {5, 3, 2, 0});
  EXPECT_THAT((std::set<int64_t>{0, 2, 3, 5}), ::testing::Contains(cache.get(4).target.item<int64_t>()));
  expect(twice, of_both, {0, 5});
  expect(Map(images, [](Sample sample) { return sample; }), pick.only(1), {});
  expect(BatchMap(images, Mixup{.class_num = 6}), pick.only(1), {});
  EXPECT_THAT(images.bad().numbers, ::testing::UnorderedElementsAre(1, 4));
  EXPECT_EQ(images.bad().samples, 6);
  EXPECT_EQ(twice.bad().samples, 14);
  EXPECT_THAT(twice.bad().numbers, ::testing::UnorderedElementsAre(1, 4, 6, 7, 9, 12));
  const Subset some(images, {0, 4, 2, 4, 0});
  EXPECT_EQ(some.bad().samples, 3);
  EXPECT_THAT(some.bad().numbers, ::testing::ElementsAre(1));
  EXPECT_THAT(caught.lines().at(0), HasSubstr("it is left out"));
}

TEST_F(Pictures, OfWhichTooManyAreBadStopTheJob) {
  write(40);
  for (int64_t i = 0; i < 26; ++i) put(i, "bad");
  const CaughtLog caught;
  const ImageDataset images = dataset(40, evaluation(), {.bad_share = 0.05, .bad_at_least = 1});
  Loader loader(images, {.batch_size = 1, .workers = 0});
  int64_t batches = 0;
  const std::string message = refusal([&] {
    for (auto& [x, y] : loader) batches += x.size(0);
  });
  EXPECT_LE(batches, 3);  // 5 % of 40 are allowed
  EXPECT_THAT(message,
              AllOf(HasSubstr("of 40 pictures could not be used, 2 are allowed"), HasSubstr(file(0).string())));
  const ImageDataset patient = dataset(40, evaluation(), {.bad_share = 0.6});
  std::vector<int64_t> all(40);
  std::iota(all.begin(), all.end(), 0);
  patient.batch(all);
  EXPECT_EQ(patient.bad().numbers.size(), 26u);
  const std::string later = refusal([&] { patient.batch(all); });
  EXPECT_THAT(later, AllOf(HasSubstr("26 of 40 pictures"), HasSubstr("24 are allowed")));
  EXPECT_EQ(std::count(later.begin(), later.end(), '\n'), 20);  // so many are listed
}

TEST_F(Pictures, OfFormatsThatAreNotReadAreRefusedByName) {
  write(2);
  const auto refused = [&](const std::string& name, const std::string& bytes) {
    write_file_atomically(folder_.path() / name, bytes, {.durable = false});
    ImageList mixed = list(2);
    mixed.add(name, 0);
    mixed.add("other.webp", 0);
    return refusal([&] { ImageDataset(mixed, evaluation(), {.root = folder_.path()}); });
  };
  EXPECT_THAT(refused("a.BMP", "BM......"),
              AllOf(HasSubstr("a.BMP is a BMP, and only JPEG and PNG are read"), HasSubstr("(.bmp: 1, .webp: 1)")));
  EXPECT_THAT(refused("a.gif", "GIF89a.."), HasSubstr("a.gif is a GIF"));
  EXPECT_THAT(refused("a.tif", std::string("II*\0....", 8)), HasSubstr("a.tif is a TIFF"));
  EXPECT_THAT(refused("a.webp", "RIFF....WEBPVP8 "), HasSubstr("a.webp is a WebP"));
  EXPECT_THAT(refused("a.avif", std::string("\0\0\0\x1c", 4) + "ftypavif...."), HasSubstr("a.avif is an AVIF"));
  EXPECT_EQ(refused("a.bmp", image::jpeg_of(image::waves(20, 20))), "nothing was thrown");
}

TEST_F(Pictures, OfFormatsThatAreNotReadAreRefusedWhateverTheirNames) {
  write(3);
  put(1, "RIFF....WEBPVP8 ");
  const CaughtLog caught;
  const ImageDataset mixed = dataset(3, evaluation());
  EXPECT_THAT(refusal([&] { mixed.get(1); }), AllOf(HasSubstr("is a WebP, and only JPEG and PNG are read"),
                                                    HasSubstr("whatever their names say (`file ")));
  EXPECT_TRUE(mixed.bad().numbers.empty());
  put(2, "<html>");
  EXPECT_NO_THROW(mixed.get(2)) << "a failed download is a damaged picture";
  EXPECT_EQ(mixed.bad().numbers.size(), 1u);
}

TEST_F(Pictures, ThatAreAllBadStopTheJobAtOnce) {
  for (int64_t i = 0; i < 3; ++i) put(i, "bad");
  const CaughtLog caught;
  EXPECT_THAT(refusal([&] { dataset(3, evaluation()).get(0); }),
              HasSubstr("20 others in a row could not take its place"));
}

TEST_F(Pictures, ChangeTheirSizeFromBatchToBatch) {
  write(30);
  LoaderOptions options{.batch_size = 8, .workers = 2, .multi_scale = {.scales = {32, 64}}};
  Loader loader(dataset(30, training(16)), options);
  std::set<int64_t> sizes;
  for (auto& [x, y] : loader) {
    EXPECT_EQ(x.size(2), x.size(3));
    sizes.insert(x.size(3));
  }
  EXPECT_EQ(sizes, (std::set<int64_t>{32, 64}));
}

TEST_F(Pictures, WithNonsenseAreRefused) {
  EXPECT_THAT(refusal([] { ImageDataset(ImageList(), evaluation()); }), HasSubstr("the list is empty"));
  EXPECT_THAT(refusal([] { ImageDataset(list(1), evaluation(), {.root = "/nowhere"}); }),
              AllOf(HasSubstr("/nowhere is not a folder"), HasSubstr("0.jpg")));
  EXPECT_THAT(refusal([&] { dataset(1, evaluation(), {.bad_share = 2}); }), HasSubstr("bad_share is 2"));
}

/// What of this process is in memory, now.
int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST_F(Pictures, TakeNoMoreMemoryFromEpochToEpoch) {
  write(48);
  put(5, "bad");
  const CaughtLog caught;
  Loader loader(dataset(48, training(64)), {.batch_size = 8, .shuffle = true, .workers = 3});
  constexpr int64_t kBatch = 8 * 3 * 64 * 64 * sizeof(float);
  const auto bytes_after = [&](int count) {
    for (int epoch = 0; epoch < count; ++epoch)
      for (auto& [x, y] : loader) EXPECT_EQ(x.size(0), 8);
    return resident_bytes();
  };
  const int64_t before = bytes_after(20);  // until malloc has made its heaps, one for each thread
  const int64_t after = bytes_after(100);
  EXPECT_LT(after - before, 50 * kBatch);  // 20 MB; one batch lost in each epoch would be 40
}

// --- from a packed file

TEST_F(Pictures, OfAPackAreThoseOfTheFilesBitForBit) {
  write(6);
  std::filesystem::remove(file(3));
  put(4, image::jpeg_of(image::waves(40, 30)).substr(0, 300));  // cut off
  const CaughtLog log;
  pack_images(folder_.path() / "pack", list(6), {.root = folder_.path(), .threads = 2});
  const ImageDataset files = dataset(6, training());
  const ImageDataset packed = dataset(6, training(), {.packed = folder_.path() / "pack"});
  for (uint64_t draw = 0; draw < 5; ++draw)
    for (int64_t i = 0; i < 6; ++i) {
      const Sample expected = files.get(i, draw), got = packed.get(i, draw);
      EXPECT_TRUE(torch::equal(got.data, expected.data)) << i;
      EXPECT_TRUE(torch::equal(got.target, expected.target)) << i;
    }
  EXPECT_EQ(packed.bad().numbers, files.bad().numbers);
  EXPECT_EQ(packed.bad().numbers.size(), 2U);
}

TEST_F(Pictures, OfAPackOfPixelsAreTransformed) {
  write(2);
  pack_images(folder_.path() / "pack", list(2), {.root = folder_.path(), .short_side = 20});
  const ImageDataset packed = dataset(2, evaluation(), {.packed = folder_.path() / "pack"});
  std::filesystem::remove(file(0));
  std::vector<float> expected(evaluation().elements());
  image::Image picture;
  PackedImages(folder_.path() / "pack", list(2)).read(0, picture);
  image::Random random(0);
  evaluation().run(picture, random, expected.data());
  EXPECT_TRUE(torch::equal(packed.get(0).data.flatten(), torch::tensor(expected)));
}

TEST_F(Pictures, OfAPackMustBeThoseOfTheList) {
  write(3);
  pack_images(folder_.path() / "pack", list(3), {.root = folder_.path()});
  EXPECT_THAT(message_of<UsageError>([&] { dataset(2, training(), {.packed = folder_.path() / "pack"}); }),
              HasSubstr("was made of another list"));
}

}  // namespace
}  // namespace trireme::data
