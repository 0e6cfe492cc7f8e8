#include "trireme/io/checkpoint/training_state.h"

#include <c10/util/Type.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/loader.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/format/manifest.h"
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

// The file of a named part: model.generator.safetensors.
std::string named(const char* kind, const std::string& name) {
  return fmt::format("{}.{}", kind, name);
}

template <typename Part>
std::vector<std::string> names_of(const std::vector<Part>& parts) {
  std::vector<std::string> names;
  for (const Part& part : parts) names.push_back(part.name);
  std::sort(names.begin(), names.end());
  return names;
}

template <typename Part>
void check_names(const char* kind, const std::vector<Part>& parts) {
  const std::vector<std::string> names = names_of(parts);
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw UsageError("Checkpoint: there are two {}s named '{}'; give each a name of its own", kind, *twice);
}

void check(const TrainingState& state) {
  check_names(kModel, state.models);
  check_names(kOptimizer, state.optimizers);
  if (!state.model && state.models.empty())
    throw UsageError("Checkpoint: the TrainingState has no model; set .model, or .models with names");
  if (!state.model && state.masters)
    throw UsageError("Checkpoint: .masters belongs to .model, which is not set; named models cannot have masters");
}

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

// All parameters by names that differ: those of named models are "generator/fc.weight".
io::TensorMap optimized(const TrainingState& state) {
  io::TensorMap all;
  if (state.model) all = state.masters ? named_masters(state) : (*state.model).named_parameters();
  for (const NamedModel& one : state.models)
    for (const auto& item : (*one.model).named_parameters()) all.insert(one.name + "/" + item.key(), item.value());
  return all;
}

// The names of the network and of its optimizer, for people.
std::string class_name(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

template <typename Part, typename Describe>
std::string described(const std::vector<Part>& parts, const Describe& describe) {
  std::vector<std::string> texts;
  for (const Part& part : parts) texts.push_back(fmt::format("{}: {}", part.name, describe(part)));
  return join(texts, ", ");
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
      "with those, or do not restore '{}', which then starts from scratch",
      manifest.name, name, names.empty() ? "nothing of the kind" : join(names, ", "), name);
}

// The names of a kind that the snapshot has: of "model", those of model.NAME.
std::vector<std::string> saved_names(const char* kind, const io::Snapshot& snapshot) {
  std::vector<std::string> names;
  const std::string prefix = named(kind, "");
  for (const auto& [key, tensors] : snapshot.tensors)
    if (key.starts_with(prefix)) names.push_back(key.substr(prefix.size()));
  return names;
}

// One of two networks is never restored without the other.
template <typename Part>
void check_all_are_named(const char* kind, const std::vector<Part>& parts, const io::Snapshot& snapshot) {
  const std::vector<std::string> wanted = names_of(parts), saved = saved_names(kind, snapshot);
  if (wanted.empty() || wanted == saved) return;
  throw UsageError(
      "checkpoint {} has the {}s {}, but the program restores {}; nothing was restored. Name the same ones, or read "
      "one alone with io::load_safetensors(\"{}.NAME.safetensors\")",
      snapshot.manifest.name, kind, saved.empty() ? "without names" : join(saved, ", "), join(wanted, ", "), kind);
}

void take_models(const TrainingState& state, io::Snapshot& snapshot) {
  if (state.model) {
    snapshot.manifest.model = (*state.model).name();
    snapshot.tensors.emplace(kModel, io::state_dict(*state.model));
  } else {
    snapshot.manifest.model = described(state.models, [](const NamedModel& one) { return (*one.model).name(); });
  }
  for (const NamedModel& one : state.models)
    snapshot.tensors.emplace(named(kModel, one.name), io::state_dict(*one.model));
}

void take_optimizers(const TrainingState& state, io::Snapshot& snapshot) {
  if (!state.optimizer && state.optimizers.empty()) return;
  const io::TensorMap parameters = optimized(state);
  if (state.optimizer) {
    snapshot.manifest.optimizer = class_name(*state.optimizer);
    snapshot.tensors.emplace(kOptimizer, io::optimizer_state(*state.optimizer, parameters));
  } else {
    snapshot.manifest.optimizer =
        described(state.optimizers, [](const NamedOptimizer& one) { return class_name(one.optimizer); });
  }
  for (const NamedOptimizer& one : state.optimizers)
    snapshot.tensors.emplace(named(kOptimizer, one.name), io::optimizer_state(one.optimizer, parameters));
}

void put_models(const TrainingState& state, const io::Snapshot& snapshot) {
  const io::Manifest& manifest = snapshot.manifest;
  const auto put_one = [&](torch::nn::Module& model, const std::string& name) {
    io::load_into(model, part(snapshot.tensors, name, manifest),
                  {.from = fmt::format("checkpoint {}{}", manifest.name, name == kModel ? "" : ", " + name),
                   .advice = "Is it another model's?"});
  };
  if (state.model) put_one(*state.model, kModel);
  for (const NamedModel& one : state.models) put_one(*one.model, named(kModel, one.name));
}

void put_optimizers(const TrainingState& state, const io::Snapshot& snapshot) {
  if (!state.optimizer && state.optimizers.empty()) return;
  const io::TensorMap parameters = optimized(state);
  const auto put_one = [&](torch::optim::Optimizer& optimizer, const std::string& name) {
    io::load_optimizer_state(optimizer, parameters, part(snapshot.tensors, name, snapshot.manifest));
  };
  if (state.optimizer) put_one(*state.optimizer, kOptimizer);
  for (const NamedOptimizer& one : state.optimizers) put_one(one.optimizer, named(kOptimizer, one.name));
}

}  // namespace

io::Snapshot take(const TrainingState& state) {
  check(state);
  io::Snapshot snapshot;
  io::Manifest& manifest = snapshot.manifest;
  take_models(state, snapshot);
  take_optimizers(state, snapshot);
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
  check(state);
  check_all_are_named(kModel, state.models, snapshot);
  check_all_are_named(kOptimizer, state.optimizers, snapshot);
  put_models(state, snapshot);
  if (state.masters) put_masters(state, tensors(kMasters));
  put_optimizers(state, snapshot);
  if (state.ema) put_averages(*state.ema, tensors(kEma));
  if (state.loader) state.loader->load_state(data::parse_sampler_state(text(kLoader)));
  for (const ExtraState& extra : state.extra) extra.load(text(extra_key(extra)));
}

}  // namespace trireme::detail
