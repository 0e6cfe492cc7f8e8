#include "trireme/comm/engine/reporting.h"

#include <gtest/gtest.h>

#include "trireme/comm/engine/test_thread_engine.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

using testing::ThreadGroup;

struct Reported {
  std::string operation;
  std::vector<int> ranks;
};

// Rank 1 of 3, whose group is aborted: every operation fails.
class ReportingEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    group_->engine(0)->abort("enough");
    engine_ = make_reporting_engine(group_->engine(1), [this](const char* operation, const std::vector<int>& ranks) {
      reported_ = {operation, ranks};
    });
  }

  std::shared_ptr<ThreadGroup> group_ = std::make_shared<ThreadGroup>(3);
  std::unique_ptr<Engine> engine_;
  Reported reported_;
};

TEST_F(ReportingEngine, ACollectiveNeedsAllOthers) {
  float x = 1;
  EXPECT_THROW(engine_->all_reduce(&x, 1, DType::f32, ReduceOp::sum), PeerError);
  EXPECT_EQ(reported_.operation, "all_reduce");
  EXPECT_EQ(reported_.ranks, (std::vector<int>{0, 2}));
}

TEST_F(ReportingEngine, AMessageNeedsItsPeer) {
  float x = 1;
  EXPECT_THROW(engine_->recv(&x, 1, DType::f32, 2), PeerError);
  EXPECT_EQ(reported_.operation, "recv");
  EXPECT_EQ(reported_.ranks, (std::vector<int>{2}));
}

TEST(ReportingEngineAlone, ReportsNothingWhileAllIsWell) {
  const auto group = std::make_shared<ThreadGroup>(1);
  const auto fail = [](const char* operation, const std::vector<int>&) { ADD_FAILURE() << operation; };
  const auto engine = make_reporting_engine(group->engine(0), fail);
  float x = 1;
  engine->all_reduce(&x, 1, DType::f32, ReduceOp::sum);
  engine->barrier();
  EXPECT_EQ(x, 1);
}

}  // namespace
}  // namespace trireme
