#include "trireme/comm/shared_tensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/comm/engine/shm/arena.h"

namespace trireme::comm {
namespace {

class SharedTensors : public ::testing::Test {
 protected:
  void SetUp() override {
    share_large_tensors(2);
    share_large_tensors(4);  // does nothing
    arena_ = shm::Arena::of_process();
    ASSERT_NE(arena_, nullptr);
  }
  bool shared(const torch::Tensor& tensor) { return arena_->contains(tensor.data_ptr()); }

  shm::Arena* arena_ = nullptr;
};

TEST_F(SharedTensors, LargeOnesAreSharedSmallOnesAreNot) {
  EXPECT_TRUE(shared(torch::empty({1 << 20})));
  EXPECT_TRUE(shared(torch::zeros({static_cast<int64_t>(kLargeTensor)}, torch::kByte)));
  EXPECT_FALSE(shared(torch::empty({static_cast<int64_t>(kLargeTensor) - 1}, torch::kByte)));
  EXPECT_FALSE(shared(torch::empty({0})));
}

TEST_F(SharedTensors, TheirMemoryComesBack) {
  const size_t before = arena_->used();
  {
    torch::Tensor a = torch::ones({1 << 20});
    torch::Tensor b = (a + a).clone();
    EXPECT_EQ(b.sum().item<float>(), 2.0f * (1 << 20));
    EXPECT_GT(arena_->used(), before);
  }
  EXPECT_EQ(arena_->used(), before);
}

TEST_F(SharedTensors, GrowingShrinkingAndTakingOver) {
  torch::Tensor tensor = torch::ones({10});
  tensor.resize_({1 << 20});
  EXPECT_TRUE(shared(tensor));
  EXPECT_EQ(tensor[9].item<float>(), 1.0f);
  std::vector<float> own(1 << 20, 3.0f);
  torch::Tensor foreign = torch::from_blob(own.data(), {1 << 20});
  EXPECT_FALSE(shared(foreign));
  EXPECT_TRUE(shared(foreign.clone()));
}

TEST_F(SharedTensors, ATooLargeOneIsLibtorchsOwnError) {
  EXPECT_THROW(torch::empty({int64_t{1} << 60}, torch::kByte), c10::Error);
}

}  // namespace
}  // namespace trireme::comm
