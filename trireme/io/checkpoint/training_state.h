// All that a training run must carry over a break, as references to the objects that have it.
//
//   TrainingState state{.model = model, .optimizer = adam, .loader = train, .extra = {{"scaler", scaler}}};
//   checkpoint.save(state, {.step = step});
//
// Several models and optimizers, by name. They are one checkpoint: all of them are saved, or none.
//
//   TrainingState gan{.models = {{"generator", generator}, {"discriminator", discriminator}},
//                     .optimizers = {{"generator", adam_g}, {"discriminator", adam_d}}};
//
// The objects must outlive it. Between two steps only, that is after optimizer.step(): gradients are not part of it.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/io/safetensors.h"

namespace trireme {

namespace data {
class Loader;
}
namespace optim {
class Ema;
class MasterWeights;
}  // namespace optim

namespace io {

struct Snapshot;

/// A module, however it is held: itself, a TORCH_MODULE holder, a std::shared_ptr, DataParallel, Pipeline.
class ModuleRef {
 public:
  ModuleRef() = default;                                      ///< none
  ModuleRef(torch::nn::Module& module) : module_(&module) {}  // NOLINT(google-explicit-constructor): a reference
  template <typename Held>
    requires requires(Held& held) {
      { held.operator->() } -> std::convertible_to<torch::nn::Module*>;
    }
  ModuleRef(Held& held) : module_(held.operator->()) {}  // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return module_ != nullptr; }
  torch::nn::Module& operator*() const { return *module_; }

 private:
  torch::nn::Module* module_ = nullptr;
};

/// A reference, or nothing. Takes an object or its address.
template <typename T>
class MaybeRef {
 public:
  MaybeRef() = default;
  MaybeRef(T& object) : object_(&object) {}  // NOLINT(google-explicit-constructor): a reference
  MaybeRef(T* object) : object_(object) {}   // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return object_ != nullptr; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace io

/// Something whose state is a text: optim::GradScaler, or anything of your own.
struct ExtraState {
  template <typename T>
    requires requires(T& object, std::string text) {
      { object.state_text() } -> std::convertible_to<std::string>;
      object.load_state(text);
    }
  ExtraState(std::string name_, T& object)
      : name(std::move(name_)),
        save([&object] { return object.state_text(); }),
        load([&object](const std::string& text) { object.load_state(text); }) {}
  ExtraState(std::string name_, std::function<std::string()> save_, std::function<void(const std::string&)> load_)
      : name(std::move(name_)), save(std::move(save_)), load(std::move(load_)) {}

  std::string key() const { return "extra." + name; }  ///< in Manifest::state

  std::string name;
  std::function<std::string()> save;             ///< UTF-8
  std::function<void(const std::string&)> load;  ///< throws when it does not understand; then nothing has changed
  bool required = true;                          ///< false: a checkpoint without it is restored, and load() not called
};

struct NamedModel {
  std::string name;  ///< letters, digits, '_' and '-'
  io::ModuleRef model;
};

struct NamedOptimizer {
  std::string name;
  std::reference_wrapper<torch::optim::Optimizer> optimizer;  ///< of parameters of any of the models
};

struct TrainingState {
  io::ModuleRef model = {};
  io::MaybeRef<torch::optim::Optimizer> optimizer = {};
  std::vector<NamedModel> models = {};  ///< beside `model` or instead of it
  std::vector<NamedOptimizer> optimizers = {};
  io::MaybeRef<data::Loader> loader = {};
  io::MaybeRef<optim::Ema> ema = {};
  io::MaybeRef<optim::MasterWeights> masters = {};  ///< made of all of model->parameters(); what the optimizer steps
  std::vector<ExtraState> extra = {};
};

namespace detail {

/// What lies on several ranks (ShardedDataParallel, Pipeline), brought together: while it lives, the parameters of the models are
/// whole, and it has the whole states of the optimizers; the layers of other ranks on the first rank alone. Made and ended by all ranks at the same places.
class WholeState {
 public:
  explicit WholeState(const TrainingState& state);
  /// The parameters and buffers of a model, as io::state_dict() gives them, with whole parameters.
  io::TensorMap state_dict(torch::nn::Module& model) const;
  /// The state of an optimizer, as io::optimizer_state() gives it, with whole tensors.
  io::TensorMap optimizer_state(const torch::optim::Optimizer& optimizer, const io::TensorMap& parameters) const;
  /// Averages and masters, with whole tensors.
  const io::TensorMap& averages() const { return averages_; }
  const io::TensorMap& masters() const { return masters_; }

 private:
  io::TensorMap with_whole(const torch::nn::Module& model) const;

  std::vector<std::shared_ptr<void>> held_;
  std::map<const torch::nn::Module*, io::TensorMap> pipelines_;     // all layers, of models that are pipelines
  std::map<const torch::nn::Module*, io::TensorMap> whole_;         // parameters of models that are parts
  std::map<const torch::optim::Optimizer*, io::TensorMap> joined_;  // of optimizers with split parameters
  io::TensorMap averages_;
  io::TensorMap masters_;
};

/// The tensors are the objects' own, as in io/module_state.h, or of `whole`; texts are in manifest.state. Throws
/// UsageError for an optimizer whose state is unknown, a state without a model, and a name that is there twice.
io::Snapshot take(const TrainingState& state, const WholeState& whole);
io::Snapshot take(const TrainingState& state);

/// The parts that `state` names; the snapshot may have more, but of named models all or none, and so of named
/// optimizers. Throws UsageError when it has not, or when a part does not fit; then some of the objects may have
/// changed, and putting back what take() gave before repairs it.
void put(const TrainingState& state, const io::Snapshot& snapshot);

}  // namespace detail
}  // namespace trireme
