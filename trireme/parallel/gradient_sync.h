// Keeps the gradients of a model equal on all ranks: the part of DataParallel that does not depend on the model's type.
//
// Words
//   backward    one call of backward() that gives some of the model's parameters their gradients.
//   learning    the first backward, and the first one after the model has changed. It runs without overlap; at its end
//               the ranks agree on which parameters get gradients and in which order, and make buckets (bucket_plan.h).
//   arming      telling c10d::Reducer that a backward has begun. libtorch has no forward hooks and the Reducer reduces
//               only when armed, so the first gradient of each backward arms it.
//   end         the engine's own callback, when the last gradient of a backward is there. What the Reducer has not
//               finished by then can never be finished: a parameter that was in use has got no gradient.
//   local       a gradient that came under no_sync and has not been averaged yet (local_gradients.h).
//
// No backward is left out
//   Hooks are tied to gradient accumulators, and a parameter may get another one, or be new. So the model's tree is
//   compared with what is known before every backward (backward_watch.h, a few microseconds); if it has changed, the
//   hooks move and this backward learns. Each backward begins with a message of 16 bytes that tells the ranks what the
//   others know of their models: when the model of one rank alone has changed, that is an error on every rank.
//   When a model changes after the forward, the graph of that forward calls no hook. Such gradients are found at the end
//   of the backward (gradient_marks.h) and are an error on every rank, unless several threads run backwards.
//
// Everything that travels uses a group of its own, so that collectives of the user (or of SyncBatchNorm) inside a
// backward cannot get between two buckets in different places on different ranks.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/parallel/gradient_exchange.h"
#include "trireme/parallel/gradient_hook.h"

namespace trireme {

struct DataParallelOptions {
  int comm_buffer_size = 25;            ///< MB of gradients that travel together
  int last_comm_buffer_size = 1;        ///< MB of the bucket that is full first: the model's last layers
  bool find_unused_parameters = false;  ///< the set of parameters that get gradients may change from step to step
  bool broadcast_buffers = true;        ///< after each averaged backward the buffers are rank 0's
  bool static_graph = false;            ///< a parameter may get its gradient several times in one backward
  GradientCompression gradient_compression = GradientCompression::none;
  int powersgd_rank = 4;
  /// Every so many averaged backwards the ranks compare checksums of their parameters; 0: never. A parameter that
  /// differs or is not finite is a UsageError on every rank. Before the first of these looks, differences alone are
  /// looked for at the 1st, 2nd, 4th, 8th backward and so on. Where layers are split over other ranks, those compare what
  /// each of them has whole; on a GPU a difference, which may come of rounding, is only a warning.
  /// Weights that were stepped with gradients of one rank alone are compared in the next backward under no_sync(), too.
  int parameter_check_interval = 200;
};

namespace detail {
/// "comm_buffer_size = 25 MB, …": for comparisons between ranks.
std::string describe(const DataParallelOptions& options);
}  // namespace detail

/// Thread rule: one backward at a time.
class GradientSync final : public GradientExchange {
 public:
  /// Makes parameters and buffers rank 0's. UsageError on every rank when the models differ, with the first difference.
  GradientSync(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options);
  ~GradientSync() override;
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  const Group& group() const override;
  /// Before the first backward.
  void set_hook(GradientHook hook);
  /// The state of the optimizer, if there is one, is at the end that of a rank that was last.
  void join(const std::function<void()>& train, torch::optim::Optimizer* optimizer = nullptr);

  /// After the first backward, else 0.
  int bucket_count() const;
  /// How many parameters the buckets hold.
  int gradient_count() const;

 private:
  void set_enabled(bool enabled) override;

  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme
