// A training without libtorch: it records steps, phases, collectives and values as the library does, and computes
// nothing. For tests of what the launcher shows.
//
//   trireme launch -n 2 fake_trainer STEPS MILLISECONDS [die=RANK@STEP] [hang=RANK@STEP] [epochs=N] [nan=STEP]
//
// die: the rank is killed there. hang: the rank computes for ever there, and the others wait for it. epochs: the steps
// are those of so many epochs, and the launcher knows them before. nan: from there on the loss is not a number.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "trireme/core/parallel_env.h"
#include "trireme/core/text.h"
#include "trireme/watch/recorder.h"

namespace {

using namespace trireme;

struct Moment {
  int rank = -1;
  int64_t step = -1;
};

struct Plan {
  int64_t steps = 0;
  double ms = 0;
  int64_t epochs = 0;
  std::optional<int64_t> nan;
  Moment death;
  Moment hang;
};

Moment moment_in(std::string_view text) {
  const size_t at = text.find('@');
  return {std::stoi(std::string(text.substr(0, at))), std::stoll(std::string(text.substr(at + 1)))};
}

Plan read_plan(int argc, char** argv) {
  Plan plan{.steps = std::stoll(argv[1]), .ms = std::stod(argv[2])};
  for (int i = 3; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("die=")) plan.death = moment_in(word.substr(4));
    if (word.starts_with("epochs=")) plan.epochs = std::stoll(std::string(word.substr(7)));
    if (word.starts_with("nan=")) plan.nan = std::stoll(std::string(word.substr(4)));
    if (word.starts_with("hang=")) plan.hang = moment_in(word.substr(5));
  }
  return plan;
}

class Trainer {
 public:
  explicit Trainer(const Plan& plan) : plan_(plan), world_("world#0", all_ranks(), size_) {}

  void run() {
    fmt::print("rank {} of {} begins\n", rank_, size_);
    for (step_ = 1; step_ <= plan_.steps; ++step_) step();
    fmt::print("rank {} is done\n", rank_);
  }

 private:
  std::vector<int> all_ranks() const {
    std::vector<int> ranks(static_cast<size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  void spend(double share) const {
    std::this_thread::sleep_for(  // layers: sleep ok, because the length of a phase is what is shown
        std::chrono::duration<double, std::milli>(plan_.ms * share));
  }

  watch::CallFacts all_reduce(uint64_t elements) {
    return {.operation = "all_reduce",
            .dtype = "float",
            .reduce = "sum",
            .number = ++calls_,
            .elements = elements,
            .bytes = 4 * elements};
  }

  void step() {
    watch::set_step(step_);
    if (plan_.epochs > 0) watch::set_goal(goal());
    if (rank_ == plan_.death.rank && step_ == plan_.death.step) ::raise(SIGKILL);
    if (step_ == plan_.hang.step) hang();
    data();
    forward();
    backward();
    optimizer();
    report();
  }

  watch::Goal goal() const {
    const int64_t length = plan_.steps / plan_.epochs;
    return {.epoch = (step_ - 1) / length + 1, .epochs = plan_.epochs, .last_step = plan_.steps};
  }

  void data() {
    const watch::PhaseScope phase(watch::Phase::data);
    spend(0.08);
    watch::count_samples(64);
  }

  void forward() {
    const watch::PhaseScope phase(watch::Phase::forward);
    spend(0.25);
  }

  // Two buckets are averaged while it runs; the main thread waits for the end of the second.
  void backward() {
    const watch::PhaseScope phase(watch::Phase::backward);
    spend(0.12);
    const watch::CallFacts first = all_reduce(1 << 20), second = all_reduce(300'000);
    std::thread buckets([&] {
      bucket(first);
      bucket(second);
    });
    spend(0.25);
    buckets.join();
  }

  void bucket(const watch::CallFacts& facts) {
    const watch::Recording call(world_, facts);
    spend(0.14 + 0.02 * (rank_ % 3));
  }

  void optimizer() {
    const watch::PhaseScope phase(watch::Phase::optimizer);
    spend(0.07);
  }

  void report() {
    const double progress = static_cast<double>(step_);
    const double noise = 0.03 * std::sin(progress * 12.9898 + rank_);
    const bool diverged = plan_.nan && step_ >= *plan_.nan;
    watch::report("loss", diverged ? std::nan("") : 0.12 + 2.2 * std::exp(-progress / 60) + noise);
    watch::report("accuracy", 0.97 - 0.85 * std::exp(-progress / 45) + noise / 3);
    watch::report("lr", 0.1 * std::min(1.0, progress / 20) * std::exp(-progress / 200));
    {
      const watch::Recording metrics(world_, all_reduce(2));
      spend(0.03);
    }
    if (step_ % 10 == 0) fmt::print("step {} loss {:.4f}\n", step_, 0.12 + 2.2 * std::exp(-progress / 60) + noise);
    std::fflush(stdout);
  }

  [[noreturn]] void hang() {
    std::optional<watch::PhaseScope> computing;
    std::optional<watch::Recording> waiting;
    if (rank_ == plan_.hang.rank)
      computing.emplace(watch::Phase::forward);
    else
      waiting.emplace(world_, all_reduce(1 << 20));
    for (;;) ::pause();
  }

  const Plan plan_;
  const int rank_ = get_rank();
  const int size_ = get_world_size();
  watch::Group world_;
  int64_t step_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  Trainer(read_plan(argc, argv)).run();
}
