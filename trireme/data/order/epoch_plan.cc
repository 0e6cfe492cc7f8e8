#include "trireme/data/order/epoch_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/data/order/shuffle.h"

namespace trireme::data {
namespace {

constexpr int64_t kMaxSamples = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxBatch = std::numeric_limits<int32_t>::max();

int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// What each rank gets of `count` samples when all get the same.
int64_t per_rank(const SamplerOptions& options, int64_t count, int64_t ranks) {
  return options.pad ? divide_up(count, ranks) : count / ranks;
}

int64_t steps_for(const SamplerOptions& options, int64_t samples_of_a_rank) {
  return options.drop_last ? samples_of_a_rank / options.batch_size : divide_up(samples_of_a_rank, options.batch_size);
}

/// The order of one stage. What lies behind `length` was cut off: no rank sees it, but a later stage may.
struct StageOrder {
  std::vector<uint32_t> samples;
  int64_t length = 0;
  int64_t padding = 0;
};

/// Makes the length a multiple of ranks: repeats from the head, again and again if need be; or cuts.
StageOrder fit(std::vector<uint32_t> samples, const SamplerOptions& options, int64_t ranks) {
  const size_t before = samples.size();
  const auto length = static_cast<size_t>(per_rank(options, static_cast<int64_t>(before), ranks) * ranks);
  if (length > before) samples.resize(length);
  for (size_t i = before; i < length; ++i) samples[i] = samples[i - before];
  return {std::move(samples), static_cast<int64_t>(length), static_cast<int64_t>(length - std::min(before, length))};
}

std::vector<uint32_t> in_sequence(uint32_t count) {
  std::vector<uint32_t> samples(count);
  std::iota(samples.begin(), samples.end(), 0u);
  return samples;
}

StageOrder first_order(const SamplerOptions& options, int64_t epoch, int64_t ranks) {
  const uint64_t seed = options.seed + static_cast<uint64_t>(epoch);
  const auto count = static_cast<uint32_t>(options.samples);
  if (options.shuffle && options.order == Order::torch) return fit(torch_randperm(count, seed), options, ranks);
  StageOrder order = fit(in_sequence(count), options, ranks);
  if (options.shuffle) numpy_shuffle(order.samples, static_cast<uint32_t>(seed));
  return order;
}

/// What no rank has seen after a stage, each sample once, in the order it would have come. Adds what the stage
/// consumed to `seen`.
std::vector<uint32_t> unseen(const StageOrder& order, const Stage& stage, std::vector<bool>& seen) {
  const auto rest_begins = order.samples.begin() + stage.consumed;
  std::for_each(order.samples.begin(), rest_begins, [&](uint32_t sample) { seen[sample] = true; });
  std::vector<bool> taken = seen;
  std::vector<uint32_t> rest;
  std::copy_if(rest_begins, order.samples.end(), std::back_inserter(rest), [&](uint32_t sample) {
    const bool fresh = !taken[sample];
    taken[sample] = true;
    return fresh;
  });
  return rest;
}

void check_consumed(const Stage& stage, const StageOrder& order) {
  if (stage.consumed < 0 || stage.consumed > order.length || stage.consumed % stage.ranks != 0)
    throw UsageError(
        "sampler state: {} ranks have consumed {} samples, but there were {} for them, dealt {} at a time; the state "
        "is damaged or belongs to another dataset",
        stage.ranks, stage.consumed, order.length, stage.ranks);
}

/// The order of the last stage.
StageOrder running_order(const SamplerOptions& options, int64_t epoch, const std::vector<Stage>& stages) {
  StageOrder order = first_order(options, epoch, stages[0].ranks);
  check_consumed(stages[0], order);
  if (stages.size() == 1) return order;
  std::vector<bool> seen(static_cast<size_t>(options.samples), false);
  for (size_t next = 1; next < stages.size(); ++next) {
    order = fit(unseen(order, stages[next - 1], seen), options, stages[next].ranks);
    check_consumed(stages[next], order);
  }
  return order;
}

ScaledSteps scaled(const SamplerOptions& options, int64_t begin, int64_t length, int64_t ranks) {
  return scaled_steps(
      scale_choices(options.multi_scale, options.batch_size),
      {.begin = begin, .length = length, .ranks = ranks, .drop_last = options.drop_last, .seed = options.seed});
}

}  // namespace

const char* to_string(Order order) {
  return order == Order::paddle ? "paddle" : "torch";
}

void check(const SamplerOptions& options, RankInfo me) {
  if (me.size < 1 || me.rank < 0 || me.rank >= me.size)
    throw UsageError("sampler: rank {} of {} ranks does not exist; ranks count from 0 to size - 1", me.rank, me.size);
  if (options.samples < 1)
    throw UsageError("sampler: the dataset has {} samples; there must be at least 1", options.samples);
  if (options.samples > kMaxSamples)
    throw UsageError("sampler: {} samples are more than the {} it can number", options.samples, kMaxSamples);
  if (options.batch_size < 1 || options.batch_size > kMaxBatch)
    throw UsageError("sampler: batch_size is {}; it must be from 1 to {}", options.batch_size, kMaxBatch);
  check(options.multi_scale);
}

int64_t steps_per_epoch(const SamplerOptions& options, int64_t ranks) {
  const int64_t samples = per_rank(options, options.samples, ranks);
  if (options.multi_scale.scales.empty()) return steps_for(options, samples);
  return static_cast<int64_t>(scaled(options, 0, samples * ranks, ranks).image_sizes.size());
}

EpochPlan::EpochPlan(const SamplerOptions& options, int64_t epoch, const std::vector<Stage>& stages, RankInfo me)
    : batch_size_(options.batch_size),
      deal_(options.order),
      seed_(options.seed),
      epoch_(epoch),
      me_(me),
      consumed_(stages.back().consumed) {
  StageOrder order = running_order(options, epoch, stages);
  order_ = std::move(order.samples);
  length_ = order.length;
  padding_ = order.padding;
  steps_ = steps_for(options, (length_ - consumed_) / me.size);
  if (options.multi_scale.scales.empty()) return;
  scaled_ = scaled(options, consumed_, length_, me.size);
  steps_ = static_cast<int64_t>(scaled_.image_sizes.size());
}

std::vector<int64_t> EpochPlan::batch(int64_t step) const {
  const int64_t begin = consumed_before(step);
  const int64_t mine = (consumed_before(step + 1) - begin) / me_.size;
  const int64_t first = deal_ == Order::paddle ? begin + me_.rank * mine : begin + me_.rank;
  const int64_t stride = deal_ == Order::paddle ? 1 : me_.size;
  std::vector<int64_t> batch(static_cast<size_t>(mine));
  for (int64_t i = 0; i < mine; ++i) batch[static_cast<size_t>(i)] = order_[static_cast<size_t>(first + i * stride)];
  return batch;
}

Pick EpochPlan::pick(int64_t step) const {
  std::vector<int64_t> indices = batch(step);
  std::vector<uint64_t> draws;
  for (const int64_t index : indices) draws.push_back(mix(seed_, epoch_, index));
  const int64_t image_size = scaled_.image_sizes.empty() ? 0 : scaled_.image_sizes[static_cast<size_t>(step)];
  return Pick::of(std::move(indices), std::move(draws), image_size);
}

int64_t EpochPlan::consumed_before(int64_t step) const {
  if (!scaled_.begins.empty()) return scaled_.begins[static_cast<size_t>(step)];
  return std::min(consumed_ + step * batch_size_ * me_.size, length_);
}

}  // namespace trireme::data
