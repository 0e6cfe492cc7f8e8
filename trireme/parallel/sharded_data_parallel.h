// A model that is split over the ranks: each keeps a share of the optimizer's states, of the gradients, and if you like
// of the parameters, so that R ranks train what one cannot hold.
//
//   auto world = init_parallel_env();
//   ShardedDataParallel model(Net(), world, {.shard = Shard::parameters});
//   torch::optim::Adam adam(model.parameters(), 1e-3);          // the dot: this rank's pieces
//   …
//   auto loss = torch::cross_entropy(model(x), y);
//   loss.backward();
//   optim::clip_grad_norm(model.parameters(), 1.0);             // the norm over all ranks
//   adam.step();
//   adam.zero_grad();
//
// The numbers are those of DataParallel, and of one process with batches of all ranks together. The model is any
// libtorch module, unchanged. Bytes on each of R ranks, for P parameters in float with Adam:
//
//   DataParallel          4 P + 4 P + 8 P            weights, gradients, states
//   Shard::optimizer      4 P + 4 P + (8 + 4) P / R
//   Shard::gradients      4 P + (4 + 8) P / R        and the gradients of four units
//   Shard::parameters     (4 + 4 + 8) P / R          and the parameters of three units, the gradients of four
//
// Requires: an optimizer that treats every number by itself (SGD, Adam, AdamW, RMSprop, Adagrad; not LBFGS, which
// train::Step and GradScaler refuse). Every rank uses the model at the same places: forward and backward communicate, also
// to evaluate. An optimizer made from model->parameters(), or before the model was wrapped, has nothing to step: the next
// backward() says so.
// Gradients under no_sync() are whole on every rank until they are averaged; to drop them, call model.zero_grad(): the
// optimizer's does not know them.
// When a rank fails, forward and backward throw on the others (see Group).
#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/cxx20.h"
#include "trireme/parallel/forward_phase.h"
#include "trireme/parallel/init.h"
#include "trireme/parallel/module_pointer.h"
#include "trireme/parallel/sharded/shard_sync.h"

namespace trireme {

/// While it lives all parameters are whole on this rank, to read or write: to save, to load, to look at. Each rank keeps
/// its part of what was written, so all write the same: else the next use of the model is a UsageError on every rank.
/// Made and ended by all ranks at the same places.
class GatheredParameters {
 public:
  explicit GatheredParameters(std::shared_ptr<ShardSync> sync) : sync_(std::move(sync)) { sync_->hold(); }
  ~GatheredParameters() {
    if (sync_) sync_->let_go();
  }
  GatheredParameters(GatheredParameters&&) noexcept = default;
  GatheredParameters& operator=(GatheredParameters&&) = delete;

 private:
  std::shared_ptr<ShardSync> sync_;
};

/// M is a module holder (as TORCH_MODULE makes them) or a std::shared_ptr of a module. Move-only.
template <typename M>
class ShardedDataParallel {
  static_assert(
      !std::derived_from<M, torch::nn::Module>,
      "ShardedDataParallel needs a pointer to the module: ShardedDataParallel(std::make_shared<Net>(...), world), "
      "or a holder that TORCH_MODULE(Net) makes");

 public:
  /// Moves the module to world.device(), whole, before it is split.
  [[nodiscard]] ShardedDataParallel(M module, const World& world, const ShardedOptions& options = {})
      : module_(std::move(module)) {
    detail::module_pointer(module_)->to(world.device());
    sync_ = std::make_shared<ShardSync>(detail::module_pointer(module_), world, options);
  }
  /// Leaves it where it is.
  [[nodiscard]] ShardedDataParallel(M module, const Group& group, const ShardedOptions& options = {})
      : module_(std::move(module)),
        sync_(std::make_shared<ShardSync>(detail::module_pointer(module_), group, options)) {}
  ShardedDataParallel(ShardedDataParallel&&) noexcept = default;
  ShardedDataParallel& operator=(ShardedDataParallel&&) noexcept = default;

  template <typename... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }
  template <typename... Args>
  auto forward(Args&&... args) {
    const watch::PhaseScope phase(detail::forward_phase());
    sync_->rethrow_failure();
    auto output = module_->forward(std::forward<Args>(args)...);
    sync_->rethrow_failure();  // no exception leaves an operator, but it may have failed to get its parameters
    return output;
  }

  /// The model itself: layers, eval(), names without a prefix. After a step its parameters are whole only inside of an
  /// operator or while gathered() lives; torch::save() is not one. Calls through it do not report a failed gather:
  /// the next model(x) or backward() does.
  auto operator->() { return &*module_; }
  M& module() { return module_; }

  /// This rank's piece of every parameter, in the model's order: what an optimizer steps. Of one dimension; empty where
  /// other ranks have all of a parameter.
  std::vector<torch::Tensor> parameters() const { return sync_->pieces().values(); }
  /// The same with the parameters' names, for groups of parameters.
  const torch::OrderedDict<std::string, torch::Tensor>& named_parameters() const { return sync_->pieces(); }

  /// Clears the pieces' gradients, as the optimizer's zero_grad() does, and also those that backwards under no_sync() have
  /// left on this rank.
  void zero_grad() {
    for (torch::Tensor& piece : parameters()) piece.mutable_grad().reset();
    module_->zero_grad();
  }

  [[nodiscard]] NoSync no_sync() { return NoSync(sync_); }
  [[nodiscard]] GatheredParameters gathered() { return GatheredParameters(sync_); }

  const std::shared_ptr<ShardSync>& sync() const { return sync_; }

 private:
  M module_;
  std::shared_ptr<ShardSync> sync_;
};

}  // namespace trireme
