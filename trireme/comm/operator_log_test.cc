#include "trireme/comm/operator_log.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/test_support.h"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(OperatorLog, LayersAndTheirBackwardsAreLoggedBeforeTheyRun) {
  log_operators(3);
  const CaughtLog log;
  torch::nn::Linear layer(4, 5);
  layer->forward(torch::ones({2, 4})).sum().backward();
  EXPECT_THAT(log.lines(), Contains(HasSubstr("rank 3 runs aten::linear Float[2, 4] Float[5, 4] Float[5]")));
  EXPECT_THAT(log.lines(), Contains(AllOf(HasSubstr("rank 3 runs "), HasSubstr("AddmmBackward0"))));
  EXPECT_THAT(log.lines(), Not(Contains(HasSubstr("runs aten::addmm")))) << "that is within aten::linear";
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
