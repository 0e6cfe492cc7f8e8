#include "trireme/comm/operator_log.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/test_support.h"

namespace trireme::comm {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(OperatorLog, LayersAndTheirBackwardsAreLoggedBeforeTheyRun) {
  log_operators(3);
  const CaughtLog log;
  torch::nn::Conv2d layer(3, 4, 2);
  layer->forward(torch::ones({1, 3, 5, 5})).sum().backward();
  EXPECT_THAT(log.lines(),
              Contains(HasSubstr("rank 3 runs aten::conv2d Float[1, 3, 5, 5] Float[4, 3, 2, 2] Float[4]")));
  EXPECT_THAT(log.lines(), Contains(HasSubstr("rank 3 runs ConvolutionBackward0")));
  EXPECT_THAT(log.lines(), Not(Contains(HasSubstr("runs aten::convolution")))) << "that is within aten::conv2d";
}

TEST(OperatorLog, AnOperatorThatFailsIsTheLastLine) {
  log_operators(3);
  const CaughtLog log;
  EXPECT_THROW(torch::mm(torch::ones({2, 3}), torch::ones({2, 3})), c10::Error);
  EXPECT_THAT(log.lines().back(), HasSubstr("runs aten::mm Float[2, 3] Float[2, 3]"));
  torch::ones({1}).neg();
  EXPECT_THAT(log.lines().back(), HasSubstr("runs aten::neg")) << "the depth is right after the failure";
}

}  // namespace
}  // namespace trireme::comm
