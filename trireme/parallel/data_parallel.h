// One model, many ranks: after backward() the gradients are the average over the group.
//
//   auto world = init_parallel_env();
//   DataParallel model(Net(), world);                      // on world.device(), rank 0's weights everywhere
//   torch::optim::Adam adam(model->parameters(), 1e-3);
//   …
//   auto loss = torch::cross_entropy(model(x), y);
//   loss.backward();                                       // averaged, while it computes
//   adam.step();
//
// model(x), model.forward(x) and anything called through model-> all give averaged gradients: what counts is
// backward(). Training with R ranks and batches of B equals one process with batches of R*B.
//
// Requires: the same model on every rank, and as many averaged backwards (see join() for ranks that run out of data).
// The wrapper lives as long as the module is trained: a backward after its end is a UsageError.
// Parameters that get no gradient in the first backward stay out; if one changes its mind later, that is a UsageError
// with its name on every rank, and find_unused_parameters = true is the cure.
// When a rank fails, backward() throws on the others (see Group).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/cxx20.h"
#include "trireme/parallel/forward_phase.h"
#include "trireme/parallel/gradient_sync.h"
#include "trireme/parallel/init.h"
#include "trireme/parallel/module_pointer.h"

namespace trireme {

/// M is a module holder (as TORCH_MODULE makes them) or a std::shared_ptr of a module. Move-only.
template <typename M>
class DataParallel {
  static_assert(
      !std::derived_from<M, torch::nn::Module>,
      "DataParallel needs a pointer to the module: DataParallel(std::make_shared<Net>(...), world), or a holder "
      "that TORCH_MODULE(Net) makes");

 public:
  /// Moves the module to world.device().
  [[nodiscard]] DataParallel(M module, const World& world, const DataParallelOptions& options = {})
      : module_(std::move(module)) {
    pointer()->to(world.device());
    sync_ = std::make_shared<GradientSync>(pointer(), world, options);
  }
  /// Leaves it where it is.
  [[nodiscard]] DataParallel(M module, const Group& group, const DataParallelOptions& options = {})
      : module_(std::move(module)), sync_(std::make_shared<GradientSync>(pointer(), group, options)) {}
  DataParallel(DataParallel&&) noexcept = default;
  DataParallel& operator=(DataParallel&&) noexcept = default;

  template <typename... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }
  template <typename... Args>
  auto forward(Args&&... args) {
    const watch::PhaseScope phase(detail::forward_phase());
    return module_->forward(std::forward<Args>(args)...);
  }

  /// What an optimizer steps. The same as model->parameters(); with ShardedDataParallel only this form is right.
  std::vector<torch::Tensor> parameters() const { return pointer()->parameters(); }

  /// The model itself: parameters, layers, eval(), names without a prefix.
  auto operator->() { return &*module_; }
  M& module() { return module_; }

  [[nodiscard]] NoSync no_sync() { return NoSync(sync_); }
  /// Runs `train`. When it returns while other ranks go on, this rank answers their backwards with zeros (divided by
  /// the whole number of ranks) until all have returned; then every rank gets the parameters of a rank that was
  /// last, and the state of its optimizer.
  void join(const std::function<void()>& train, torch::optim::Optimizer& optimizer) { sync_->join(train, &optimizer); }
  /// For an optimizer that keeps no state, or that is not used again.
  void join(const std::function<void()>& train) { sync_->join(train); }
  /// Replaces the averaging; before the first backward.
  void set_gradient_hook(GradientHook hook) { sync_->set_hook(std::move(hook)); }

  /// Parameters and buffers by name.
  torch::OrderedDict<std::string, torch::Tensor> state_dict() const {
    torch::OrderedDict<std::string, torch::Tensor> state = pointer()->named_parameters();
    for (const auto& buffer : pointer()->named_buffers()) state.insert(buffer.key(), buffer.value());
    return state;
  }

  const GradientSync& gradients() const { return *sync_; }
  const std::shared_ptr<GradientSync>& sync() const { return sync_; }

 private:
  std::shared_ptr<torch::nn::Module> pointer() const { return detail::module_pointer(module_); }

  M module_;
  std::shared_ptr<GradientSync> sync_;
};

}  // namespace trireme
