// In a world of one; several ranks: tests/comm.
#include "trireme/comm/collectives.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <future>

#include "trireme/comm/group_state.h"
#include "trireme/comm/work_state.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

class Alone : public ::testing::Test {
 protected:
  void SetUp() override { make_world_group(comm::Context::meet({})); }
  void TearDown() override { forget_world_group(); }
  const torch::Tensor x_ = torch::arange(6.0).view({2, 3});
};

bool is_x(const torch::Tensor& tensor) {
  return torch::equal(tensor.reshape(-1), torch::arange(6.0));
}

TEST_F(Alone, EveryCollectiveGivesBackWhatItWasGiven) {
  for (const ReduceOp op : comm::kReduceOps) all_reduce(x_, op);
  reduce(x_, 0);
  broadcast_async(x_, 0).wait();
  EXPECT_TRUE(is_x(x_));
  Tensors gathered, list, parts;
  all_gather(gathered, x_);
  gather(list, x_, 0);
  all_to_all(parts, {x_});
  for (const Tensors& tensors : {gathered, list, parts}) {
    ASSERT_EQ(tensors.size(), 1u);
    EXPECT_TRUE(is_x(tensors[0]));
  }
  const torch::Tensor scattered = torch::zeros({2, 3}), reduced = torch::zeros({3, 2}).t(),
                      exchanged = torch::zeros({6});
  scatter(scattered, {x_}, 0);
  reduce_scatter(reduced, x_, ReduceOp::avg);
  all_to_all(exchanged.view({2, 3}), x_);
  for (const torch::Tensor& tensor : {scattered, reduced, exchanged}) EXPECT_TRUE(is_x(tensor));
  barrier();
}

// Else a tensor that autograd has kept for the backward would be overwritten without a word.
TEST_F(Alone, ResultsCountAsWrites) {
  const torch::Tensor kept = torch::ones({2, 3}), loss = (kept.clone().requires_grad_() * kept).sum();
  all_gather(kept, x_);
  EXPECT_THROW(loss.backward(), c10::Error);

  Tensors list{torch::zeros({2, 3})}, inputs{x_};
  const torch::Tensor& output = list[0];
  const std::vector<std::function<void()>> calls = {
      [&] { all_reduce(output); },         [&] { reduce(output, 0); },
      [&] { broadcast(output, 0); },       [&] { all_gather(list, x_); },
      [&] { all_gather(output, x_); },     [&] { gather(list, x_, 0); },
      [&] { scatter(output, inputs, 0); }, [&] { reduce_scatter(output, inputs); },
      [&] { reduce_scatter(output, x_); }, [&] { all_to_all(list, inputs); },
      [&] { all_to_all(output, x_); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto before = output._version();
    calls[i]();
    EXPECT_GT(output._version(), before) << "call " << i;
  }
}

TEST_F(Alone, Objects) {
  EXPECT_THAT(all_gather_object("a"), ElementsAre("a"));
  EXPECT_EQ(broadcast_object(std::string("\0\n", 2), 0), std::string("\0\n", 2));
  EXPECT_THAT(gather_object("", 0), ElementsAre(""));
  EXPECT_EQ(scatter_object({"b"}, 0), "b");
  EXPECT_THROW(scatter_object({"a", "b"}, 0), UsageError);
}

TEST_F(Alone, Groups) {
  const Group world = Group::world();
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.backend(), "local");
  EXPECT_EQ(world.cuda_backend(), "staged local");
  EXPECT_THAT(world.split(7).ranks(), ElementsAre(0));
  EXPECT_FALSE(world.split(-1).is_member());
  EXPECT_THROW(world.new_group({1}), UsageError);
  EXPECT_EQ(Group().rank(), -1);
  EXPECT_THROW(Group().ranks(), UsageError);
}

TEST(World, IsAnErrorBeforeItExists) {
  EXPECT_THROW(Group::world(), UsageError);
}

TEST_F(Alone, ConjugatedAndNegatedViewsAreWhatTheyShow) {
  const torch::Tensor z = torch::complex(torch::ones({3}), torch::ones({3}));
  Tensors out;
  all_gather(out, torch::conj(z));
  EXPECT_TRUE(torch::equal(out[0], torch::conj(z).resolve_conj()));
  const torch::Tensor seen = torch::conj(z);
  broadcast(seen, 0);
  EXPECT_TRUE(torch::equal(seen.resolve_conj(), torch::complex(torch::ones({3}), -torch::ones({3}))));
  const torch::Tensor imaginary = torch::imag(torch::conj(z));  // a view with the sign turned around
  all_reduce(imaginary);
  EXPECT_TRUE(torch::equal(imaginary.resolve_neg(), -torch::ones({3})));
}

TEST_F(Alone, TensorsThatCannotBeSentAreRefused) {
  EXPECT_THROW(all_reduce(x_.to_sparse()), UsageError);
  EXPECT_THROW(all_reduce(torch::Tensor()), UsageError);
  EXPECT_THROW(all_reduce(torch::ones({2}, torch::kMeta)), UsageError);
  EXPECT_THROW(broadcast(x_, 1), UsageError);
  EXPECT_THROW(send(x_, 1), UsageError);
}

// Several elements in one place: there is no room for the result.
TEST_F(Alone, ExpandedTensorsAreRefusedWhereAResultIsWritten) {
  const torch::Tensor expanded = torch::ones({1, 3}).expand({2, 3});
  Tensors list{expanded}, inputs{x_};
  EXPECT_THROW(all_reduce(expanded), UsageError);
  EXPECT_THROW(all_reduce_async(expanded), UsageError);
  EXPECT_THROW(reduce(expanded, 0), UsageError);
  EXPECT_THROW(broadcast(expanded, 0), UsageError);
  EXPECT_THROW(all_gather(list, x_), UsageError);
  EXPECT_THROW(all_gather(expanded, x_), UsageError);
  EXPECT_THROW(scatter(expanded, inputs, 0), UsageError);
  EXPECT_THROW(reduce_scatter(expanded, inputs), UsageError);
  EXPECT_THROW(all_to_all(list, inputs), UsageError);
  EXPECT_THROW(irecv(expanded, 0), UsageError);
  Tensors outputs;
  all_gather(outputs, expanded);  // as an input it is as good as any
  EXPECT_TRUE(torch::equal(outputs[0], expanded));
}

TEST_F(Alone, OverlappingWindowsAreRefusedWhereAResultIsWritten) {
  const torch::Tensor line = torch::arange(8, torch::kFloat);
  EXPECT_THROW(all_reduce(line.unfold(0, 3, 1)), UsageError);
  EXPECT_THROW(all_reduce(line.as_strided({2, 3}, {2, 1})), UsageError);
  EXPECT_THROW(all_reduce(line.as_strided({3, 2}, {1, 2})), UsageError);
}

TEST_F(Alone, LayoutsWithoutASharedPlaceAreWelcome) {
  const torch::Tensor line = torch::arange(24, torch::kFloat);
  const torch::Tensor before = line.clone();
  for (const torch::Tensor& view :
       {line.view({4, 6}).t(), line.view({4, 6}).slice(1, 1, 4), line.slice(0, 0, 24, 5), line.unfold(0, 3, 4),
        line.as_strided({3, 2}, {2, 3}), line.as_strided({1, 1}, {0, 0}), line.slice(0, 3, 3)})
    all_reduce(view);
  EXPECT_TRUE(torch::equal(line, before));
}

// The text of an error that a program sends on, without the backtrace.
TEST(ErrorText, OfLibtorchHasNoBacktrace) {
  try {
    static_cast<void>(torch::ones({2}) + torch::ones({3}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_EQ(without_backtrace(error), error.what_without_backtrace());
    EXPECT_NE(without_backtrace(error), error.what());
  }
}

TEST_F(Alone, WorkIsDoneAfterWait) {
  const Work work = all_reduce_async(x_);
  work.wait();
  work.wait();
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(Work().done());
  Work().wait(Deadline::in(0ms));
}

TEST_F(Alone, ThenRunsOnceInOrderAndByWait) {
  std::vector<int> order;
  const Work work = all_reduce_async(x_).then([&] { order.push_back(1); }).then([&] { order.push_back(2); });
  EXPECT_TRUE(order.empty());
  work.wait();
  work.wait(Deadline::in(1s));
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST_F(Alone, ThenOfNothingRunsToo) {
  bool ran = false;
  Work().then([&] { ran = true; }).wait();
  EXPECT_TRUE(ran);
}

// A work that the test ends itself.
class Manual : public c10d::Work {
 public:
  Manual() : Work(0, c10d::OpType::BARRIER) {}
  void end(std::exception_ptr error = nullptr) { finish(std::move(error)); }
};

TEST(WorkDeadline, GivesUpAndMayBeWaitedForAgain) {
  const auto manual = c10::make_intrusive<Manual>();
  bool ran = false;
  const Work work = make_work(manual).then([&] { ran = true; });
  EXPECT_FALSE(work.done());
  EXPECT_THROW(work.wait(Deadline::in(10ms)), PeerError);
  EXPECT_FALSE(ran);
  manual->end();
  EXPECT_TRUE(work.done());
  work.wait(Deadline::in(1s));
  EXPECT_TRUE(ran);
}

TEST(WorkDeadline, NeverWaitsForEver) {
  const auto manual = c10::make_intrusive<Manual>();
  auto ended = std::async(std::launch::async, [&] { make_work(manual).wait(Deadline::never()); });
  EXPECT_EQ(ended.wait_for(20ms), std::future_status::timeout);
  manual->end();
  ASSERT_EQ(ended.wait_for(10s), std::future_status::ready);
}

TEST(WorkError, ReachesTheWaiterAndStopsThen) {
  const auto manual = c10::make_intrusive<Manual>();
  const Work work = make_work(manual).then([] { FAIL() << "after a failure"; });
  manual->end(std::make_exception_ptr(PeerError("rank 3 died")));
  EXPECT_TRUE(work.done());
  EXPECT_THROW(work.wait(), PeerError);
  EXPECT_THROW(work.wait(Deadline::in(1s)), PeerError);
}

}  // namespace
}  // namespace trireme
