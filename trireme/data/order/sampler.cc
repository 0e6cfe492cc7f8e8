#include "trireme/data/order/sampler.h"

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

void check_same(const SamplerState& state, const SamplerOptions& options) {
  if (state.samples != options.samples && state.consumed() > 0)
    throw UsageError(
        "sampler state: it is of a dataset of {} samples, this one has {}, and epoch {} has consumed {} of them; "
        "finish that epoch with its own dataset, or resume from a checkpoint of the end of an epoch (of `trireme "
        "train`: --resume .../epoch_N), after which the dataset may be another",
        state.samples, options.samples, state.epoch, state.consumed());
  if (state.order != options.order)
    throw UsageError("sampler state: its order is {}'s, this sampler's is {}'s; resume with the same .order",
                     to_string(state.order), to_string(options.order));
  if (state.shuffle != options.shuffle)
    throw UsageError("sampler state: it is of a sampler that {}, this one {}; resume with the same .shuffle",
                     state.shuffle ? "shuffles" : "does not shuffle", options.shuffle ? "shuffles" : "does not");
  if (state.epoch < 0) throw UsageError("sampler state: its epoch is {}; epochs count from 0", state.epoch);
}

/// The history of an epoch as seen by a world of `ranks`. Stages in which nothing happened leave no trace.
std::vector<Stage> continued(const std::vector<Stage>& before, int64_t ranks) {
  std::vector<Stage> stages;
  for (const Stage& stage : before)
    if (stage.consumed != 0) stages.push_back(stage);
  if (stages.empty() || stages.back().ranks != ranks) stages.push_back({.ranks = ranks});
  return stages;
}

}  // namespace

DistributedBatchSampler::DistributedBatchSampler(const SamplerOptions& options, RankInfo me)
    : options_(options), me_(me) {
  check(options, me);
  rewind(0);
}

void DistributedBatchSampler::rewind(int64_t epoch) {
  epoch_ = epoch;
  stages_ = continued({}, me_.size);
  plan_.reset();
  step_ = 0;
}

void DistributedBatchSampler::set_epoch(int64_t epoch) {
  if (epoch < 0) throw UsageError("set_epoch({}): epochs count from 0", epoch);
  rewind(epoch);
}

SamplerState DistributedBatchSampler::state() const {
  SamplerState state{.order = options_.order,
                     .shuffle = options_.shuffle,
                     .seed = options_.seed,
                     .samples = options_.samples,
                     .epoch = epoch_,
                     .stages = stages_};
  if (plan_) state.stages.back().consumed = plan_->consumed_before(step_);
  std::erase_if(state.stages, [](const Stage& stage) { return stage.consumed == 0; });
  return state;
}

void DistributedBatchSampler::load_state(const SamplerState& state) {
  check_same(state, options_);
  SamplerOptions options = options_;
  options.seed = state.seed;
  auto stages = continued(state.stages, me_.size);
  static_cast<void>(EpochPlan(options, state.epoch, stages, me_));  // refuses a wrong state before anything changes
  options_ = options;
  rewind(state.epoch);
  stages_ = std::move(stages);
}

void DistributedBatchSampler::start() {
  if (plan_) rewind(epoch_ + 1);
  plan_ = std::make_shared<const EpochPlan>(options_, epoch_, stages_, me_);
}

std::optional<DistributedBatchSampler::Batch> DistributedBatchSampler::next() {
  if (!plan_) return std::nullopt;
  if (step_ < plan_->steps()) return plan_->batch(step_++);
  rewind(epoch_ + 1);
  return std::nullopt;
}

DistributedBatchSampler::Iterator DistributedBatchSampler::begin() {
  start();
  return Iterator(*this);
}

}  // namespace trireme::data
