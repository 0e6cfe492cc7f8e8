#include "trireme/data/mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/core/env.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"

namespace trireme::data {
namespace {

using std::filesystem::path;
using ::testing::AllOf;
using ::testing::HasSubstr;

const path kOwn = path(__FILE__).parent_path().parent_path().parent_path() / "examples/data/fashion-mnist";

/// Two images of 1 x 2 with labels 7 and 9.
class SmallMnist : public ::testing::Test {
 protected:
  SmallMnist() {
    write("train-images-idx3-ubyte", std::string("\0\0\x8\x3\0\0\0\2\0\0\0\1\0\0\0\2\0\xff\x33\x66", 20));
    write("train-labels-idx1-ubyte", std::string("\0\0\x8\x1\0\0\0\2\x7\x9", 10));
  }
  void write(const std::string& name, const std::string& content) {
    write_file_atomically(folder_.path() / name, content, {.durable = false});
  }
  TempDir folder_;
};

/// Gives the variable back as it was.
class DataDir {
 public:
  explicit DataDir(const std::optional<std::string>& value) : before_(env::get("TRIREME_DATA_DIR")) {
    env::set("TRIREME_DATA_DIR", value);
  }
  ~DataDir() { env::set("TRIREME_DATA_DIR", before_); }

 private:
  std::optional<std::string> before_;
};

TEST_F(SmallMnist, PixelsAreBetweenZeroAndOne) {
  const Mnist mnist(folder_.path());
  EXPECT_EQ(mnist.size(), 2);
  const Batch batch = mnist.batch(std::vector<int64_t>{1, 0});
  EXPECT_TRUE(torch::allclose(batch.data, torch::tensor({0.2f, 0.4f, 0.f, 1.f}).reshape({2, 1, 1, 2})));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({9, 7}, torch::kInt64)));
}

TEST_F(SmallMnist, MeanAndStdAreTakenOut) {
  const Mnist mnist(folder_.path(), {.mean = 0.5, .std = 0.25});
  EXPECT_TRUE(torch::allclose(mnist.get(0).data, torch::tensor({-2.f, 2.f}).reshape({1, 1, 2})));
  EXPECT_EQ(mnist.get(0).target.item<int64_t>(), 7);
  EXPECT_EQ(mnist.get(0).target.dim(), 0);
  EXPECT_THAT(refusal([&] { Mnist(folder_.path(), {.std = 0}); }), HasSubstr("std is 0; it must be above 0"));
}

TEST_F(SmallMnist, NoSuchSample) {
  const Mnist mnist(folder_.path());
  EXPECT_THROW(mnist.get(2), c10::IndexError);
  EXPECT_THROW(mnist.get(-1), c10::IndexError);
}

TEST_F(SmallMnist, MissingAndDamagedFilesAreNamed) {
  EXPECT_THAT(refusal([&] { Mnist(folder_.path(), {.split = Split::test}); }),
              AllOf(HasSubstr(folder_.path().string()), HasSubstr("no t10k-images-idx3-ubyte and no")));
  write("train-labels-idx1-ubyte", std::string("\0\0\x8\x1\0\0\0\2\x7\xa", 10));
  EXPECT_THAT(refusal([&] { Mnist{folder_.path()}; }),
              HasSubstr("train-labels-idx1-ubyte: label #1 is 10, but labels must be from 0 to 9"));
  write("train-labels-idx1-ubyte", std::string("\0\0\x8\x1\0\0\0\1\x7", 9));
  EXPECT_THAT(refusal([&] { Mnist{folder_.path()}; }), AllOf(HasSubstr("has 2 images"), HasSubstr("has 1 labels")));
}

TEST(FashionMnist, TheOneThatComesAlongHasEachClassEquallyOften) {
  for (const auto& [split, per_class] : {std::pair(Split::train, 500), std::pair(Split::test, 100)}) {
    const Mnist mnist(kOwn, {.split = split});
    ASSERT_EQ(mnist.size(), 10 * per_class);
    const auto all = torch::arange(mnist.size());
    const Batch batch = mnist.batch({all.data_ptr<int64_t>(), static_cast<size_t>(all.numel())});
    EXPECT_TRUE(torch::equal(batch.target.bincount(), torch::full({10}, per_class, torch::kInt64)));
    EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{mnist.size(), 1, 28, 28}));
    EXPECT_NEAR(batch.data.mean().item<double>(), 0.286, 0.01);  // as the whole set
    EXPECT_NEAR(batch.data.std().item<double>(), 0.353, 0.01);
  }
}

TEST(FashionMnist, IsLookedForWhereTheVariableSays) {
  TempDir folder;
  const DataDir variable(folder.path().string());
  EXPECT_THAT(refusal([] { FashionMnist::find(); }),
              AllOf(HasSubstr(folder.path().string() + "/fashion-mnist, "), HasSubstr("TRIREME_DATA_DIR")));
  std::filesystem::copy(kOwn, folder.path());
  EXPECT_EQ(FashionMnist::find(), folder.path());
  std::filesystem::copy(kOwn, folder.path() / "fashion-mnist");
  EXPECT_EQ(FashionMnist::find(), folder.path() / "fashion-mnist");
  EXPECT_EQ(FashionMnist().size(), 5000);
}

TEST(FashionMnist, IsAlwaysThere) {
  const DataDir variable(std::nullopt);
  const FashionMnist test({.split = Split::test});
  EXPECT_TRUE(test.size() == 10000 || test.size() == 1000) << test.size();
}

}  // namespace
}  // namespace trireme::data
