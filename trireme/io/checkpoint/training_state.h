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
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/io/module_state.h"
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

struct Manifest;
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

/// A tensor that may lie on several ranks. make() brings it together and is then called by all of them, for all tensors
/// in the same order; the result may be the object's own tensor.
struct WholeTensor : io::TensorLayout {
  std::function<torch::Tensor()> make;
};
using WholeTensors = std::vector<WholeTensor>;

std::vector<io::TensorLayout> layouts_of(const WholeTensors& tensors);
/// All of them at once.
io::TensorMap made(const WholeTensors& tensors);

/// The tensors of a TrainingState, whole, one at a time: what is split (ShardedDataParallel, tensor parallelism) is
/// brought together when it is made. The layers of a Pipeline are brought to its first rank at once. Made by all ranks at
/// the same places; the objects must outlive it.
class WholeState {
 public:
  explicit WholeState(const TrainingState& state);
  /// The parameters and buffers of a model, as io::state_dict() gives them.
  WholeTensors state_dict(const torch::nn::Module& model) const;
  /// The state of an optimizer, as io::optimizer_state() gives it; `parameters` as there.
  WholeTensors optimizer_state(const torch::optim::Optimizer& optimizer, const io::TensorMap& parameters) const;
  const WholeTensors& averages() const { return averages_; }
  const WholeTensors& masters() const { return masters_; }

 private:
  std::map<const torch::nn::Module*, io::TensorMap> pipelines_;  // all layers, of models that are pipelines
  std::map<const torch::optim::Optimizer*, io::TensorMap> of_pipelines_;
  WholeTensors averages_;
  WholeTensors masters_;
};

/// The files of a checkpoint by name, and what its manifest says of the objects. Throws UsageError for an optimizer whose
/// state is unknown, a state without a model, and a name that is there twice. The texts are in the manifest of rank 0,
/// which alone calls describe().
std::map<std::string, WholeTensors> files_of(const TrainingState& state, const WholeState& whole);
io::Manifest describe(const TrainingState& state);

/// All of it. Called by every rank.
io::Snapshot take(const TrainingState& state);

/// Whole tensors into what may be split; each rank keeps its part. load_weights() as io::load_into(); the others give this
/// rank's parts, for io::load_optimizer_state() and for Ema::load_state(). None of them communicates.
io::LoadReport load_weights(torch::nn::Module& model, const io::TensorMap& whole, const io::LoadOptions& options);
io::TensorMap local_optimizer_state(const io::TensorMap& parameters, const io::TensorMap& whole);
io::TensorMap local_parts(const io::TensorMap& ours, const io::TensorMap& whole);

/// What of a tensor of a checkpoint belongs to this rank. Nothing: it belongs to other ranks, or to a file that the state
/// does not name. UsageError for another shape.
using LocalPart = std::function<std::optional<torch::Tensor>(const std::string& file, const std::string& name,
                                                             const torch::Tensor& whole)>;
/// The state must outlive it.
LocalPart local_part(const TrainingState& state);

/// UsageError when what a checkpoint has does not fit: names, and the models' shapes and types. Looks at no values: `saved`
/// may have tensors on the device Meta.
void check_fit(const TrainingState& state, const io::Snapshot& saved);
/// This rank's parts of all files, and the texts: the objects' own tensors, as local_part() gives copies of them.
io::Snapshot take_local(const TrainingState& state);
/// The parts that `state` names, from what local_part() or take_local() gave, after check_fit(). Throws UsageError when a
/// part is missing or does not fit; then some of the objects may have changed, and putting back what take_local() gave
/// before repairs it.
void put_local(const TrainingState& state, const io::Snapshot& local);

}  // namespace detail
}  // namespace trireme
