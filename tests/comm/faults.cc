#include <fmt/core.h>
#include <signal.h>
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "cases.h"
#include "modes.h"
#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/store/store.h"

namespace trireme::ranks {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;  // for what should take a moment
constexpr int kGoodOperations = 41;

// The reports of all ranks but `absent`; nobody ends before all have reported, so that no rank is told by the end of
// another what it should have found out itself.
class Reports {
 public:
  Reports(const World& world, int absent) : world_(world), absent_(absent) {}

  void report(const std::string& text) {
    fmt::print("rank {}: {}\n", world_.rank(), text);
    std::fflush(stdout);
    const int expected = world_.size() - (absent_ < 0 ? 0 : 1);
    if (world_.store()->add("reports", 1) == expected) world_.store()->set("reported", "");
    await_all();
  }
  void await_all() { world_.store()->get("reported", Deadline::in(kPatience)); }

 private:
  const World& world_;
  const int absent_;
};

int64_t millis_since(Clock::time_point begin) {
  return std::chrono::duration_cast<Millis>(Clock::now() - begin).count();
}

std::string describe(const PeerError& error, Clock::time_point begin) {
  return fmt::format("PeerError after {} ms: {}\nblames rank {} for {} #{} of {}", millis_since(begin), error.what(),
                     error.rank().value_or(-1), error.operation(), error.sequence(), error.group());
}

// Repeats until the error comes; reports it and how long after the last success.
void repeat_until_peer_error(Reports& reports, const std::function<void()>& operation) {
  Clock::time_point last = Clock::now();
  const Deadline deadline = Deadline::in(kPatience);
  try {
    while (!deadline.passed()) {
      operation();
      last = Clock::now();
    }
  } catch (const PeerError& error) {
    reports.report(describe(error, last));
    return;
  }
  throw Mismatch("no error came");
}

void expect_peer_error(Reports& reports, const std::function<void()>& operation) {
  const Clock::time_point begun = Clock::now();
  try {
    operation();
  } catch (const PeerError& error) {
    reports.report(describe(error, begun));
    return;
  }
  throw Mismatch("no error came");
}

// Kills this process from another thread as soon as `operations` says so: in the middle of whatever comes then.
std::thread make_killer(const std::atomic<int>& operations, int when) {
  return std::thread([&operations, when] {
    for (int seen = operations; seen < when; seen = operations) operations.wait(seen);
    ::raise(SIGKILL);
  });
}

}  // namespace

void run_die(const World& world, const std::string& name, int victim) {
  ::signal(SIGTERM, SIG_IGN);  // the launcher's, when it sees the death before we do
  const Kind& kind = find_kind(name);
  Reports reports(world, victim);
  std::atomic<int> operations = 0;
  Case c{.group = world, .shape = {3, 20011}, .root = world.size() - 1};
  const auto next = [&] {
    c.async = ++c.seed % 2 == 0;
    run(kind, c);
    ++operations;
    operations.notify_one();
  };
  if (world.rank() != victim) return repeat_until_peer_error(reports, next);
  const std::thread killer = make_killer(operations, 100);
  for (;;) next();
}

void run_leave(const World& world, int leaver) {
  Reports reports(world, leaver);
  const auto next = [&] { run(find_kind("all_reduce"), {.group = world}); };
  if (world.rank() != leaver) return repeat_until_peer_error(reports, next);
  for (int i = 0; i < kGoodOperations; ++i) next();
}

void run_late(const World& world, int late) {
  Reports reports(world, late);
  run(find_kind("all_reduce"), {.group = world});
  if (world.rank() == late) return reports.await_all();
  expect_peer_error(reports, [&] { run(find_kind("all_reduce"), {.group = world}); });
}

void run_mismatch(const World& world, const std::string& what) {
  for (int i = 0; i < kGoodOperations; ++i) run(find_kind("all_reduce"), {.group = world});
  // Rank 1, or the second half of the ranks: with two hosts, one of them.
  const bool by_host = std::getenv("MISMATCH_BY_HOST") != nullptr;
  const bool odd = by_host ? world.rank() >= world.size() / 2 : world.rank() == 1;
  Reports reports(world, -1);
  try {
    const torch::Tensor x = torch::ones({1024});
    Tensors parts;
    if (world.rank() == 0)
      for (int rank = 0; rank < world.size(); ++rank) parts.push_back(torch::empty({1024}));
    if (what == "size")
      all_reduce(odd ? torch::ones({512}) : x);
    else if (what == "shape")
      all_reduce(odd ? torch::ones({3, 2}) : torch::ones({2, 3}));
    else if (what == "type")
      all_reduce(odd ? x.to(torch::kDouble) : x);
    else if (what == "op")
      all_reduce(x, odd ? ReduceOp::max : ReduceOp::sum);
    else if (what == "average")
      all_reduce(x, odd ? ReduceOp::avg : ReduceOp::sum);
    else if (what == "way")
      odd ? broadcast(x, 0) : gather(parts, x, 0);
    else if (what == "root")
      broadcast(x, odd ? 1 : 0);
    else if (what == "order")
      odd ? broadcast(x, 0) : all_reduce(x);
    else if (what == "parts")
      reduce_scatter(torch::ones({odd ? 3 : 4}),
                     Tensors(static_cast<size_t>(world.size()), torch::ones({odd ? 3 : 4})));
    else
      throw Mismatch("nothing known that differs in " + what);
  } catch (const UsageError& error) {
    return reports.report(fmt::format("UsageError: {}", error.what()));
  } catch (const PeerError& error) {
    return reports.report(fmt::format("PeerError: {}", error.what()));
  }
  throw Mismatch("no error came");
}

void run_drop(const World& world) {
  Reports reports(world, -1);
  std::vector<int> all(static_cast<size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) all[static_cast<size_t>(rank)] = rank;
  Group group = world.new_group(all);
  const torch::Tensor x = torch::ones({1024});
  if (world.rank() == 0) {
    const Work work = all_reduce_async(x, ReduceOp::sum, group);
    group = Group();
    barrier();
    return expect_peer_error(reports, [&] { work.wait(Deadline::in(kPatience)); });
  }
  barrier();
  // The first may still end well: rank 0 has given its part before it went.
  repeat_until_peer_error(reports, [&] { all_reduce(x, ReduceOp::sum, group); });
}

void run_abort(const World& world) {
  Reports reports(world, -1);
  std::vector<int> all;
  for (int rank = 0; rank < world.size(); ++rank) all.push_back(rank);
  const Group group = world.new_group(all);
  const torch::Tensor x = torch::ones({1024});
  Work work;
  if (world.rank() != 0) work = all_reduce_async(x, ReduceOp::sum, group);
  barrier();
  if (world.rank() == 0) {
    group.abort("enough");
    work = all_reduce_async(x, ReduceOp::sum, group);
  }
  expect_peer_error(reports, [&] { work.wait(Deadline::in(kPatience)); });
}

void run_at_once(const World& world) {
  const torch::Tensor x = torch::ones({1024});
  if (world.rank() == 1) {
    // With FLAGS_benchmark=1 the call on rank 0 cannot return before this rank has joined it.
    const bool returns = env::get("FLAGS_benchmark") != "1";
    try {
      world.store()->get("returned", Deadline::in(returns ? Millis(kPatience) : Millis(500)));
    } catch (const PeerError&) {
      if (returns) throw;
    }
    return all_reduce(x);
  }
  const Work work = all_reduce_async(x);
  fmt::print("done at return: {}\n", work.done());
  if (world.rank() == 0) world.store()->set("returned", "");
  work.wait();
}

}  // namespace trireme::ranks
