#include "trireme/io/checkpoint/training_state.h"

#include <c10/util/Type.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/loader.h"
#include "trireme/io/module_state.h"
#include "trireme/io/optimizer_state.h"
#include "trireme/optim/ema.h"
#include "trireme/optim/master_weights.h"

namespace trireme::detail {
namespace {

constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kEma = "ema";
constexpr const char* kMasters = "masters";
constexpr const char* kLoader = "loader";
constexpr const char* kSamples = "samples_of_epoch";  // for people; the loader's text is what is read

std::string extra_key(const ExtraState& extra) {
  return "extra." + extra.name;
}

// The masters by the names of the parameters that they stand for.
io::TensorMap named_masters(const TrainingState& state) {
  const io::TensorMap names = (*state.model).named_parameters();
  const std::vector<torch::Tensor>& masters = state.masters->parameters();
  if (names.size() != masters.size())
    throw UsageError(
        "Checkpoint: there are {} master weights for a model of {} parameters; make MasterWeights of "
        "model->parameters()",
        masters.size(), names.size());
  io::TensorMap result;
  for (size_t i = 0; i < masters.size(); ++i) result.insert(names[i].key(), masters[i]);
  return result;
}

io::TensorMap optimized(const TrainingState& state) {
  return state.masters ? named_masters(state) : (*state.model).named_parameters();
}

io::TensorMap averages(const optim::Ema& ema) {
  io::TensorMap tensors;
  for (const auto& [name, tensor] : ema.state()) tensors.insert(name, tensor);
  return tensors;
}

void put_averages(optim::Ema& ema, const io::TensorMap& tensors) {
  optim::Ema::NamedTensors named;
  for (const auto& item : tensors) named.emplace_back(item.key(), item.value());
  ema.load_state(named);
}

void put_masters(const TrainingState& state, const io::TensorMap& tensors) {
  const torch::NoGradGuard no_grad;
  for (auto& item : named_masters(state)) {
    const torch::Tensor* found = tensors.find(item.key());
    if (!found || found->sizes() != item.value().sizes())
      throw UsageError("the checkpoint's master weight '{}' {}, but the model's has {} elements", item.key(),
                       found ? fmt::format("has {}", found->numel()) : "is missing", item.value().numel());
    item.value().copy_(*found);
  }
  state.masters->write_back();
}

// What the snapshot has under a name, or an error that says what it has instead.
template <typename Map>
const typename Map::mapped_type& part(const Map& parts, const std::string& name, const io::Manifest& manifest) {
  if (const auto found = parts.find(name); found != parts.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [key, value] : parts) names.push_back(key);
  throw UsageError(
      "checkpoint {} has no '{}', only {}; nothing was restored. Was it saved by a training with other settings? Go on "
      "with those, or start '{}' anew by not restoring it",
      manifest.name, name, names.empty() ? "nothing of the kind" : join(names, ", "), name);
}

}  // namespace

io::Snapshot take(const TrainingState& state) {
  io::Snapshot snapshot;
  io::Manifest& manifest = snapshot.manifest;
  manifest.model = (*state.model).name();
  snapshot.tensors.emplace(kModel, io::state_dict(*state.model));
  if (state.optimizer) {
    const torch::optim::Optimizer& optimizer = *state.optimizer;
    manifest.optimizer = c10::demangle(typeid(optimizer).name());
    snapshot.tensors.emplace(kOptimizer, io::optimizer_state(optimizer, optimized(state)));
  }
  if (state.ema) snapshot.tensors.emplace(kEma, averages(*state.ema));
  if (state.masters) snapshot.tensors.emplace(kMasters, named_masters(state));
  if (state.loader) {
    const data::SamplerState place = state.loader->state();
    manifest.state[kLoader] = to_text(place);
    manifest.state[kSamples] = fmt::format("{}", place.consumed());
  }
  for (const ExtraState& extra : state.extra) manifest.state[extra_key(extra)] = extra.save();
  return snapshot;
}

void put(const TrainingState& state, const io::Snapshot& snapshot) {
  const io::Manifest& manifest = snapshot.manifest;
  const auto tensors = [&](const char* name) -> const io::TensorMap& { return part(snapshot.tensors, name, manifest); };
  const auto text = [&](const std::string& name) -> const std::string& { return part(manifest.state, name, manifest); };
  io::load_into(*state.model, tensors(kModel),
                {.from = fmt::format("checkpoint {}", manifest.name), .advice = "Is it another model's?"});
  if (state.masters) put_masters(state, tensors(kMasters));
  if (state.optimizer) io::load_optimizer_state(*state.optimizer, optimized(state), tensors(kOptimizer));
  if (state.ema) put_averages(*state.ema, tensors(kEma));
  if (state.loader) state.loader->load_state(data::parse_sampler_state(text(kLoader)));
  for (const ExtraState& extra : state.extra) extra.load(text(extra_key(extra)));
}

}  // namespace trireme::detail
