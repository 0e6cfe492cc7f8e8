#include "trireme/io/checkpoint/training_state.h"

#include <ATen/record_function.h>
#include <c10/util/Type.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/loader.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/format/manifest.h"
#include "trireme/io/module_state.h"
#include "trireme/io/optimizer_state.h"
#include "trireme/optim/ema.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/parallel/pipeline/pipeline_module.h"

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
  if (state.model && (state.ema || state.masters) && dynamic_cast<const parallel::PipelineModule*>(&*state.model))
    throw UsageError(
        "Checkpoint: .ema and .masters of a Pipeline, of which each rank has those of its layers, cannot be saved with "
        "it");
  if (!state.model && state.masters)
    throw UsageError("Checkpoint: .masters belongs to .model, which is not set; named models cannot have masters");
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

// Null: all layers of the model are here.
const parallel::PipelineModule* as_pipeline(const torch::nn::Module& model) {
  return dynamic_cast<const parallel::PipelineModule*>(&model);
}

// What an optimizer steps of a model.
io::TensorMap stepped(const torch::nn::Module& model) {
  const parallel::PipelineModule* pipeline = as_pipeline(model);
  return pipeline ? pipeline->optimized() : model.named_parameters();
}

// All parameters by names that differ: those of named models are "generator/fc.weight".
io::TensorMap optimized(const TrainingState& state) {
  io::TensorMap all;
  if (state.model)
    for (const auto& item : state.masters ? named_masters(state) : stepped(*state.model))
      all.insert(item.key(), optim::piece_of(item.value()));
  for (const NamedModel& one : state.models)
    for (const auto& item : stepped(*one.model)) all.insert(one.name + "/" + item.key(), optim::piece_of(item.value()));
  return all;
}

// Of the tensors of a whole model, those of this rank's.
io::TensorMap local_tensors(const torch::nn::Module& model, const io::TensorMap& tensors) {
  const io::TensorMap parameters = model.named_parameters();
  const parallel::PipelineModule* pipeline = as_pipeline(model);
  io::TensorMap result;
  for (const auto& item : tensors) {
    if (pipeline && pipeline->is_elsewhere(item.key())) continue;
    const torch::Tensor* parameter = parameters.find(item.key());
    const auto how = parameter ? optim::split_of(*parameter) : nullptr;
    result.insert(item.key(), how ? how->local(*parameter, item.value()) : item.value());
  }
  return result;
}

bool has_split_parameters(const torch::optim::Optimizer& optimizer) {
  const std::vector<torch::Tensor> parameters = optim::parameters_of(optimizer);
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const torch::Tensor& parameter) { return optim::split_of(parameter) != nullptr; });
}

// The parameter of an entry of an optimizer's state, of "adam/state/fc.weight/exp_avg"; empty: it is of none.
std::string parameter_of(const std::string& entry) {
  constexpr std::string_view kState = "/state/";
  const size_t begin = entry.find(kState), end = entry.rfind('/');
  return begin == std::string::npos ? "" : entry.substr(begin + kState.size(), end - begin - kState.size());
}

// The state of an optimizer with every tensor of a split parameter replaced by what `convert` makes of it. Numbers, such
// as the count of steps, have no dimension.
template <typename Convert>
io::TensorMap converted(const io::TensorMap& tensors, const io::TensorMap& parameters, const Convert& convert) {
  io::TensorMap result;
  for (const auto& item : tensors) {
    const std::string name = parameter_of(item.key());
    const torch::Tensor* parameter = name.empty() || item.value().dim() == 0 ? nullptr : parameters.find(name);
    const auto how = parameter ? optim::split_of(*parameter) : nullptr;
    result.insert(item.key(), how ? convert(*how, *parameter, item.value()) : item.value());
  }
  return result;
}

template <typename Use>
void each_optimizer(const TrainingState& state, const Use& use) {
  if (state.optimizer) use(*state.optimizer);
  for (const NamedOptimizer& one : state.optimizers) use(one.optimizer.get());
}

template <typename Use>
void each_model(const TrainingState& state, const Use& use) {
  if (state.model) use(*state.model);
  for (const NamedModel& one : state.models) use(*one.model);
}

// The pipeline of which an optimizer steps a part, and what its parameters' names begin with; null: of none.
std::pair<const parallel::PipelineModule*, std::string> pipeline_of(const TrainingState& state,
                                                                    const torch::optim::Optimizer& optimizer) {
  const std::vector<torch::Tensor> parameters = optim::parameters_of(optimizer);
  const auto of_this = [&](const torch::nn::Module& model) -> const parallel::PipelineModule* {
    const parallel::PipelineModule* pipeline = as_pipeline(model);
    if (!pipeline || parameters.empty()) return nullptr;
    for (const auto& item : pipeline->optimized())
      if (optim::piece_of(item.value()).is_same(parameters[0])) return pipeline;
    return nullptr;
  };
  if (state.model)
    if (const auto* pipeline = of_this(*state.model)) return {pipeline, ""};
  for (const NamedModel& one : state.models)
    if (const auto* pipeline = of_this(*one.model)) return {pipeline, one.name + "/"};
  return {nullptr, ""};
}

// Of the state of an optimizer of a whole pipeline, what belongs to this rank's parameters. A tied parameter goes by one
// name on all ranks.
io::TensorMap local_state(const TrainingState& state, const torch::optim::Optimizer& optimizer,
                          const io::TensorMap& parameters, const io::TensorMap& tensors) {
  const auto [pipeline, prefix] = pipeline_of(state, optimizer);
  if (!pipeline) return tensors;
  io::TensorMap result;
  for (const auto& item : tensors) {
    const std::string name = parameter_of(item.key());
    const bool elsewhere = name.starts_with(prefix) && pipeline->is_elsewhere(name.substr(prefix.size()));
    if (name.empty() || parameters.contains(name) || !elsewhere) result.insert(item.key(), item.value());
  }
  return result;
}

// Of the optimizers of all stages one state. Each stage has numbered its groups for itself.
io::TensorMap gathered_optimizer(const parallel::PipelineModule& pipeline, const io::TensorMap& mine) {
  constexpr int64_t kMaxGroups = 1 << 20;
  return io::with_equal_groups_merged(
      pipeline.gathered(io::with_group_numbers_from(pipeline.rank() * kMaxGroups, mine)));
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

// Tensors of which this rank may have a part each, whole. Collective.
io::TensorMap whole_tensors(const io::TensorMap& tensors) {
  io::TensorMap result;
  for (const auto& item : tensors) {
    const auto how = optim::split_of(item.value());
    result.insert(item.key(), how ? how->join(item.value(), item.value()) : item.value());
  }
  return result;
}

// What of the tensors of a checkpoint belongs to these; names that are missing stay so.
io::TensorMap parts_for(const io::TensorMap& ours, const io::TensorMap& whole) {
  io::TensorMap result;
  for (const auto& item : whole) {
    const torch::Tensor* mine = ours.find(item.key());
    const auto how = mine ? optim::split_of(*mine) : nullptr;
    result.insert(item.key(), how ? how->cut(*mine, item.value()) : item.value());
  }
  return result;
}

torch::Tensor joined(const optim::SplitTensors& how, const torch::Tensor& piece, const torch::Tensor& part) {
  return how.join(piece, part);
}

torch::Tensor cut(const optim::SplitTensors& how, const torch::Tensor& piece, const torch::Tensor& whole) {
  return how.cut(piece, whole);
}

void put_averages(const TrainingState& state, const io::TensorMap& tensors) {
  optim::Ema::NamedTensors named;
  for (const auto& item : parts_for(averages(*state.ema), tensors)) named.emplace_back(item.key(), item.value());
  state.ema->load_state(named);
}

// The parameters are whole now, and their pieces written by ourselves: no step by mistake.
void put_masters(const TrainingState& state, const io::TensorMap& tensors) {
  const torch::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard unobserved;
  io::TensorMap masters = named_masters(state);
  const io::TensorMap mine = parts_for(masters, tensors);
  for (auto& item : masters) {
    const torch::Tensor* found = mine.find(item.key());
    if (!found || found->sizes() != item.value().sizes())
      throw UsageError("the checkpoint's master weight '{}' {}, but the model's has {} elements", item.key(),
                       found ? fmt::format("has {}", found->numel()) : "is missing", item.value().numel());
    item.value().copy_(*found);
  }
  state.masters->write_back();
}

// The digits that the pieces of a model in low precision have beyond its parameters (ShardedOptions::param_dtype).
void put_exact_pieces(const torch::nn::Module& model, const io::TensorMap& tensors) {
  const torch::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard unobserved;
  for (const auto& item : model.named_parameters()) {
    torch::Tensor piece = optim::piece_of(item.value());
    const torch::Tensor* whole = tensors.find(item.key());
    if (!whole || piece.scalar_type() == item.value().scalar_type()) continue;
    piece.copy_(optim::split_of(piece)->cut(piece, *whole));
  }
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

void take_models(const TrainingState& state, const WholeState& whole, io::Snapshot& snapshot) {
  if (state.model) {
    snapshot.manifest.model = (*state.model).name();
    snapshot.tensors.emplace(kModel, whole.state_dict(*state.model));
  } else {
    snapshot.manifest.model = described(state.models, [](const NamedModel& one) { return (*one.model).name(); });
  }
  for (const NamedModel& one : state.models)
    snapshot.tensors.emplace(named(kModel, one.name), whole.state_dict(*one.model));
}

void take_optimizers(const TrainingState& state, const WholeState& whole, io::Snapshot& snapshot) {
  if (!state.optimizer && state.optimizers.empty()) return;
  const io::TensorMap parameters = optimized(state);
  if (state.optimizer) {
    snapshot.manifest.optimizer = class_name(*state.optimizer);
    snapshot.tensors.emplace(kOptimizer, whole.optimizer_state(*state.optimizer, parameters));
  } else {
    snapshot.manifest.optimizer =
        described(state.optimizers, [](const NamedOptimizer& one) { return class_name(one.optimizer); });
  }
  for (const NamedOptimizer& one : state.optimizers)
    snapshot.tensors.emplace(named(kOptimizer, one.name), whole.optimizer_state(one.optimizer, parameters));
}

void put_models(const TrainingState& state, const io::Snapshot& snapshot) {
  const io::Manifest& manifest = snapshot.manifest;
  const auto put_one = [&](torch::nn::Module& model, const std::string& name) {
    const io::TensorMap& tensors = part(snapshot.tensors, name, manifest);
    io::load_into(model, local_tensors(model, tensors),
                  {.from = fmt::format("checkpoint {}{}", manifest.name, name == kModel ? "" : ", " + name),
                   .advice = "Is it another model's?"});
    put_exact_pieces(model, tensors);
  };
  if (state.model) put_one(*state.model, kModel);
  for (const NamedModel& one : state.models) put_one(*one.model, named(kModel, one.name));
}

void put_optimizers(const TrainingState& state, const io::Snapshot& snapshot) {
  if (!state.optimizer && state.optimizers.empty()) return;
  const io::TensorMap parameters = optimized(state);
  const auto put_one = [&](torch::optim::Optimizer& optimizer, const std::string& name) {
    io::load_optimizer_state(
        optimizer, parameters,
        converted(local_state(state, optimizer, parameters, part(snapshot.tensors, name, snapshot.manifest)),
                  parameters, cut));
  };
  if (state.optimizer) put_one(*state.optimizer, kOptimizer);
  for (const NamedOptimizer& one : state.optimizers) put_one(one.optimizer, named(kOptimizer, one.name));
}

}  // namespace

WholeState::WholeState(const TrainingState& state) {
  std::set<const optim::SplitTensors*> known;
  each_model(state, [&](const torch::nn::Module& model) {
    for (const auto& item : model.named_parameters())
      if (const auto how = optim::split_of(item.value())) {
        if (known.insert(how.get()).second) held_.push_back(how->hold());
        whole_[&model].insert(item.key(), how->whole(item.value()));
      }
    if (const parallel::PipelineModule* pipeline = as_pipeline(model))
      pipelines_[&model] = pipeline->gathered(with_whole(model));
  });
  each_optimizer(state, [&](const torch::optim::Optimizer& optimizer) {
    const parallel::PipelineModule* pipeline = pipeline_of(state, optimizer).first;
    if (!pipeline && !has_split_parameters(optimizer)) return;
    const io::TensorMap parameters = optimized(state);
    io::TensorMap whole = converted(io::optimizer_state(optimizer, parameters), parameters, joined);
    joined_[&optimizer] = pipeline ? gathered_optimizer(*pipeline, whole) : std::move(whole);
  });
  if (state.model && as_pipeline(*state.model)) return;  // has neither: check()
  if (state.ema) averages_ = whole_tensors(detail::averages(*state.ema));
  if (state.masters && state.model) masters_ = whole_tensors(named_masters(state));
}

io::TensorMap WholeState::state_dict(torch::nn::Module& model) const {
  const auto pipeline = pipelines_.find(&model);
  return pipeline == pipelines_.end() ? with_whole(model) : pipeline->second;
}

io::TensorMap WholeState::with_whole(const torch::nn::Module& model) const {
  const auto whole = whole_.find(&model);
  if (whole == whole_.end()) return io::state_dict(model);
  io::TensorMap tensors;
  for (const auto& item : io::state_dict(model)) {
    const torch::Tensor* joined = whole->second.find(item.key());
    tensors.insert(item.key(), joined ? *joined : item.value());
  }
  return tensors;
}

io::TensorMap WholeState::optimizer_state(const torch::optim::Optimizer& optimizer,
                                          const io::TensorMap& parameters) const {
  const auto joined = joined_.find(&optimizer);
  return joined == joined_.end() ? io::optimizer_state(optimizer, parameters) : joined->second;
}

io::Snapshot take(const TrainingState& state, const WholeState& whole) {
  check(state);
  io::Snapshot snapshot;
  io::Manifest& manifest = snapshot.manifest;
  take_models(state, whole, snapshot);
  take_optimizers(state, whole, snapshot);
  if (state.ema) snapshot.tensors.emplace(kEma, whole.averages());
  if (state.masters) snapshot.tensors.emplace(kMasters, whole.masters());
  if (state.loader) {
    const data::SamplerState place = state.loader->state();
    manifest.state[kLoader] = to_text(place);
    manifest.state[kSamples] = fmt::format("{}", place.consumed());
  }
  for (const ExtraState& extra : state.extra) manifest.state[extra.key()] = extra.save();
  return snapshot;
}

io::Snapshot take(const TrainingState& state) {
  return take(state, WholeState(state));
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
  if (state.ema) put_averages(state, tensors(kEma));
  if (state.loader) state.loader->load_state(data::parse_sampler_state(text(kLoader)));
  for (const ExtraState& extra : state.extra)
    if (extra.required || manifest.state.contains(extra.key())) extra.load(text(extra.key()));
}

}  // namespace trireme::detail
