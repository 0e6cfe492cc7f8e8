#include "trireme/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/data/order/shuffle.h"
#include "trireme/data/tensor_dataset.h"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

class Squares : public Dataset {
 public:
  int64_t size() const override { return 10; }
  Sample get(int64_t index) const override {
    const auto x = torch::tensor({static_cast<float>(index)});
    return {x, x * x};
  }
};

const std::vector<int64_t> kSome = {3, 0, 3};

TEST(Dataset, BatchStacksWhatGetGives) {
  const Batch batch = Squares().batch(kSome);
  EXPECT_TRUE(torch::equal(batch.data, torch::tensor({3.f, 0.f, 3.f}).reshape({3, 1})));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({9.f, 0.f, 9.f}).reshape({3, 1})));
}

TEST(TensorDataset, GivesRows) {
  const auto data = torch::arange(20.).reshape({5, 2, 2});
  const auto target = torch::arange(5) * 10;
  const TensorDataset dataset(data, target);
  EXPECT_EQ(dataset.size(), 5);
  EXPECT_TRUE(torch::equal(dataset.get(3).data, data[3]));
  EXPECT_EQ(dataset.get(3).target.item<int64_t>(), 30);
  const Batch batch = dataset.batch(kSome);
  EXPECT_TRUE(torch::equal(batch.data, torch::stack({data[3], data[0], data[3]})));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({30, 0, 30}, torch::kInt64)));
  EXPECT_EQ(batch.target.scalar_type(), torch::kInt64);
}

TEST(TensorDataset, RefusesTensorsThatDoNotFit) {
  const auto message = [](const torch::Tensor& data, const torch::Tensor& target) -> std::string {
    return refusal([&] { TensorDataset dataset(data, target); });
  };
  EXPECT_THAT(message(torch::zeros({5, 2}), torch::zeros({4})), HasSubstr("data has 5 rows, but target has 4"));
  EXPECT_THAT(message(torch::zeros({}), torch::zeros({4})), HasSubstr("data must be a tensor with one row a sample"));
  EXPECT_THAT(message(torch::zeros({5}), {}), HasSubstr("but it is undefined"));
}

// The torch-free copy of randperm against the libtorch we are built with.
TEST(TorchRandperm, IsThisLibtorchs) {
  for (const int64_t count : {1, 2, 10, 1000, 70000})
    for (const uint64_t seed : {0ull, 1ull, 4294967295ull, 12345678901234ull}) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
      const auto expected = torch::randperm(count, generator);
      const auto ours = torch_randperm(static_cast<uint32_t>(count), seed);
      ASSERT_TRUE(std::equal(ours.begin(), ours.end(), expected.data_ptr<int64_t>())) << count << " " << seed;
    }
}

}  // namespace
}  // namespace trireme::data
