// This rank's share of a dataset, batch by batch, on this rank's device.
//
//   data::Loader train(data::FashionMnist(), {.batch_size = 64, .shuffle = true}, world);
//   for (int epoch = 0; epoch < 5; ++epoch)
//     for (auto& [x, y] : train) …                       // x: 64 x 1 x 28 x 28, y: 64
//
// Which samples come when is DistributedBatchSampler's (order/sampler.h): each loop is the next epoch, in an order of
// its own. While the program works on a batch, threads prepare the next ones, and the next one's copy to a GPU is under
// way; the batches do not depend on that, nor on the number of threads.
//
// Each worker prepares a whole batch at a time. Splitting one batch between workers would only make the first batch of
// an epoch come earlier, at the cost of a hand-over per sample, which takes longer than reading a small sample.
//
// A state saved inside a loop continues after the current batch, in a run of any world size:
//
//   std::string text = to_text(train.state());
//   train.load_state(parse_sampler_state(text));           // the next loop is the rest of that epoch
#pragma once

#include <torch/types.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "trireme/core/rank_info.h"
#include "trireme/data/dataset.h"
#include "trireme/data/order/epoch_plan.h"
#include "trireme/data/order/sampler_state.h"

namespace trireme::data {

struct LoaderOptions {
  int64_t batch_size = 1;  ///< per rank
  bool shuffle = false;
  bool drop_last = false;  ///< leave out a last batch that is smaller
  bool pad = true;         ///< false: leave the last size() % ranks samples out instead of repeating a few of the first
  Order order = Order::paddle;
  uint64_t seed = 0;  ///< of the shuffle, added to the epoch, and of all that is random about samples
  int workers = 1;    ///< threads that prepare batches; 0: the calling thread does, when it asks for the batch
  int prefetch = 2;   ///< batches that are prepared ahead, for each worker
  std::chrono::seconds timeout = std::chrono::minutes(30);  ///< for one batch to be prepared by a worker
  MultiScale multi_scale = {};  ///< images of changing size; with scales, batch_size is that of the first
};

/// A world that knows its device.
template <typename World>
concept HasDevice = std::convertible_to<World, RankInfo> && requires(const World& world) {
  { world.device() } -> std::convertible_to<torch::Device>;
};

/// For one thread at a time. Its threads stay from one loop to the next. Destroying it waits until the batches that are
/// being read have been read.
class Loader {
 public:
  class Iterator;

  /// The whole dataset, on the CPU. In a job of several ranks each of them reads every sample then, which the log warns
  /// of, once; RankInfo{0, 1} says that it is meant. Throws UsageError for an empty dataset and for options out of
  /// range, as do all below.
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options = {});
  template <std::derived_from<Dataset> D>
  Loader(D dataset, const LoaderOptions& options = {}) : Loader(share(std::move(dataset)), options) {}
  /// This rank's share.
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, RankInfo me,
         torch::Device device = torch::kCPU);
  template <std::derived_from<Dataset> D>
  Loader(D dataset, const LoaderOptions& options, RankInfo me, torch::Device device = torch::kCPU)
      : Loader(share(std::move(dataset)), options, me, device) {}
  /// On the device of the world.
  template <HasDevice World>
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, const World& world)
      : Loader(std::move(dataset), options, RankInfo(world), world.device()) {}
  template <std::derived_from<Dataset> D, HasDevice World>
  Loader(D dataset, const LoaderOptions& options, const World& world)
      : Loader(std::move(dataset), options, RankInfo(world), world.device()) {}
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Begins the next epoch, or the rest of one after load_state(). What a dataset throws is thrown here or by ++, when
  /// the batch's turn comes, and the batch does not count as consumed: a further ++ asks for it again. SystemError with
  /// ETIMEDOUT when a worker takes longer than the timeout.
  Iterator begin();
  static std::nullptr_t end() { return nullptr; }

  /// Batches of a whole epoch, the same number on every rank.
  int64_t size() const;
  const std::shared_ptr<const Dataset>& dataset() const;
  const LoaderOptions& options() const;
  RankInfo me() const;
  /// Which samples come in the loop that is running; null between loops.
  std::shared_ptr<const EpochPlan> plan() const;
  /// The epoch that is running or, between loops, that comes next.
  int64_t epoch() const;
  /// The next loop is this epoch from its beginning. A loop that is running ends.
  void set_epoch(int64_t epoch);

  /// The same on every rank; inside of a loop the batch at hand counts as consumed.
  SamplerState state() const;
  /// As DistributedBatchSampler::load_state(). Rank 0 warns when the state is of a dataset of another size.
  void load_state(const SamplerState& state);

 private:
  template <typename D>
  static std::shared_ptr<const Dataset> share(D dataset) {
    return std::make_shared<const D>(std::move(dataset));
  }

  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Goes through one loop, once. The batch lives until the next ++, or for as long as a copy of it.
class Loader::Iterator {
 public:
  explicit Iterator(Impl& loader);
  Batch& operator*() const;
  Batch* operator->() const { return &**this; }
  /// UsageError when another loop over the same Loader has begun since.
  Iterator& operator++();
  bool operator==(std::nullptr_t) const;

 private:
  Impl* loader_;
  int64_t loop_;
};

}  // namespace trireme::data
