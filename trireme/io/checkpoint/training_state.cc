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

// Parameters and buffers by the names under which they are saved: what is tied in a pipeline goes by one name, once.
io::TensorMap saved_tensors(const torch::nn::Module& model) {
  const parallel::PipelineModule* pipeline = as_pipeline(model);
  if (!pipeline) return io::state_dict(model);
  io::TensorMap result;
  for (const auto& item : io::state_dict(model)) {
    const std::string& name = pipeline->saved_name(item.key());
    if (!result.contains(name)) result.insert(name, item.value());
  }
  return result;
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

// Of the tensors of a whole model, those of this rank's layers.
io::TensorMap without_other_layers(const torch::nn::Module& model, const io::TensorMap& tensors) {
  const parallel::PipelineModule* pipeline = as_pipeline(model);
  io::TensorMap result;
  for (const auto& item : tensors)
    if (!pipeline || !pipeline->is_elsewhere(item.key())) result.insert(item.key(), item.value());
  return result;
}

// The parameter of an entry of an optimizer's state, of "adam/state/fc.weight/exp_avg"; empty: it is of none.
std::string parameter_of(const std::string& entry) {
  constexpr std::string_view kState = "/state/";
  const size_t begin = entry.find(kState), end = entry.rfind('/');
  return begin == std::string::npos ? "" : entry.substr(begin + kState.size(), end - begin - kState.size());
}

// The parameter for each of whose numbers an entry has one; null: of none. Numbers, such as the count of steps, have no
// dimension.
const torch::Tensor* parameter_like(const std::string& entry, const torch::Tensor& value,
                                    const io::TensorMap& parameters) {
  const std::string name = parameter_of(entry);
  return name.empty() || value.dim() == 0 ? nullptr : parameters.find(name);
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

WholeTensor whole_as_it_is(const std::string& name, const torch::Tensor& tensor) {
  return {{name, tensor.scalar_type(), tensor.sizes().vec()}, [tensor] { return tensor; }};
}

WholeTensors as_they_are(const io::TensorMap& tensors) {
  WholeTensors result;
  for (const auto& item : tensors) result.push_back(whole_as_it_is(item.key(), item.value()));
  return result;
}

// `part` has a number for each number of `piece`.
WholeTensor whole_of(const std::string& name, const torch::Tensor& piece, const torch::Tensor& part) {
  const auto how = optim::split_of(piece);
  if (!how) return whole_as_it_is(name, part);
  return {{name, part.scalar_type(), how->sizes(piece)}, [=] { return how->join(piece, part); }};
}

// Tensors of which this rank may have a part each.
WholeTensors whole_tensors(const io::TensorMap& tensors) {
  WholeTensors result;
  for (const auto& item : tensors) result.push_back(whole_of(item.key(), item.value(), item.value()));
  return result;
}

WholeTensors whole_parameters(const torch::nn::Module& model) {
  WholeTensors result;
  for (const auto& item : saved_tensors(model)) {
    const torch::Tensor& own = item.value();
    if (const auto how = optim::split_of(own))
      result.push_back(
          {{item.key(), optim::piece_of(own).scalar_type(), how->sizes(own)}, [=] { return how->whole(own); }});
    else
      result.push_back(whole_as_it_is(item.key(), own));
  }
  return result;
}

WholeTensors whole_states(const torch::optim::Optimizer& optimizer, const io::TensorMap& parameters) {
  WholeTensors result;
  for (const auto& item : io::optimizer_state(optimizer, parameters)) {
    const torch::Tensor* parameter = parameter_like(item.key(), item.value(), parameters);
    result.push_back(parameter ? whole_of(item.key(), *parameter, item.value())
                               : whole_as_it_is(item.key(), item.value()));
  }
  return result;
}

// As they are saved, without their values.
io::TensorMap saved_layout(const torch::nn::Module& model) {
  io::TensorMap result;
  for (const WholeTensor& one : whole_parameters(model))
    result.insert(one.name, torch::empty(one.sizes, torch::TensorOptions(one.type).device(torch::kMeta)));
  return result;
}

void put_parameter(const torch::Tensor& own, const torch::Tensor& part) {
  if (const auto how = optim::split_of(own)) return how->put(own, part);
  const torch::NoGradGuard no_grad;
  own.copy_(part);
}

void put_averages(const TrainingState& state, const io::TensorMap& tensors) {
  optim::Ema::NamedTensors named;
  for (const auto& item : tensors) named.emplace_back(item.key(), item.value());
  state.ema->load_state(named);
}

// The models have been written: their gathered values are known to be old, and this is no step.
void put_masters(const TrainingState& state, const io::TensorMap& tensors) {
  const torch::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard unobserved;
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

// Calls `use` with each model and its file, and each optimizer and its.
template <typename Use>
void each_model_file(const TrainingState& state, const Use& use) {
  if (state.model) use(*state.model, kModel);
  for (const NamedModel& one : state.models) use(*one.model, named(kModel, one.name));
}

template <typename Use>
void each_optimizer_file(const TrainingState& state, const Use& use) {
  if (state.optimizer) use(*state.optimizer, kOptimizer);
  for (const NamedOptimizer& one : state.optimizers) use(one.optimizer.get(), named(kOptimizer, one.name));
}

// This rank's pieces of the parameters, and the buffers.
io::TensorMap local_weights(const torch::nn::Module& model) {
  io::TensorMap tensors = saved_tensors(model);
  for (auto& item : tensors) item.value() = optim::piece_of(item.value());
  return tensors;
}

// One file of a checkpoint, as this rank sees it.
struct LocalFile {
  io::TensorMap ours;                                  // this rank's tensors
  bool is_optimizer = false;                           // names are those of entries, of which each has a parameter
  const parallel::PipelineModule* pipeline = nullptr;  // knows what lies on other ranks
  std::string prefix = {};                             // of its names in `ours`

  std::optional<torch::Tensor> part(const std::string& name, const torch::Tensor& whole) const {
    if (is_elsewhere(is_optimizer ? parameter_of(name) : name)) return std::nullopt;
    const torch::Tensor* mine = is_optimizer ? parameter_like(name, whole, ours) : ours.find(name);
    const auto how = mine ? optim::split_of(*mine) : nullptr;
    return how ? how->cut(*mine, whole) : whole;
  }

 private:
  bool is_elsewhere(const std::string& parameter) const {
    if (!pipeline || !parameter.starts_with(prefix)) return false;
    return pipeline->is_elsewhere(parameter.substr(prefix.size()));
  }
};

}  // namespace

std::vector<io::TensorLayout> layouts_of(const WholeTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

io::TensorMap made(const WholeTensors& tensors) {
  io::TensorMap result;
  for (const WholeTensor& one : tensors) result.insert(one.name, one.make());
  return result;
}

WholeState::WholeState(const TrainingState& state) {
  each_model(state, [&](const torch::nn::Module& model) {
    if (const parallel::PipelineModule* pipeline = as_pipeline(model))
      pipelines_[&model] = pipeline->gathered(made(whole_parameters(model)));
  });
  each_optimizer(state, [&](const torch::optim::Optimizer& optimizer) {
    if (const parallel::PipelineModule* pipeline = pipeline_of(state, optimizer).first)
      of_pipelines_[&optimizer] = gathered_optimizer(*pipeline, made(whole_states(optimizer, optimized(state))));
  });
  if (state.model && as_pipeline(*state.model)) return;  // has neither: check()
  if (state.ema) averages_ = whole_tensors(detail::averages(*state.ema));
  if (state.masters && state.model) masters_ = whole_tensors(named_masters(state));
}

WholeTensors WholeState::state_dict(const torch::nn::Module& model) const {
  const auto pipeline = pipelines_.find(&model);
  return pipeline == pipelines_.end() ? whole_parameters(model) : as_they_are(pipeline->second);
}

WholeTensors WholeState::optimizer_state(const torch::optim::Optimizer& optimizer,
                                         const io::TensorMap& parameters) const {
  const auto pipeline = of_pipelines_.find(&optimizer);
  return pipeline == of_pipelines_.end() ? whole_states(optimizer, parameters) : as_they_are(pipeline->second);
}

std::map<std::string, WholeTensors> files_of(const TrainingState& state, const WholeState& whole) {
  check(state);
  std::map<std::string, WholeTensors> files;
  each_model_file(state, [&](const torch::nn::Module& model, const std::string& file) {
    files.emplace(file, whole.state_dict(model));
  });
  each_optimizer_file(state, [&](const torch::optim::Optimizer& optimizer, const std::string& file) {
    files.emplace(file, whole.optimizer_state(optimizer, optimized(state)));
  });
  if (state.ema) files.emplace(kEma, whole.averages());
  if (state.masters) files.emplace(kMasters, whole.masters());
  return files;
}

io::Manifest describe(const TrainingState& state) {
  check(state);
  io::Manifest manifest;
  manifest.model = state.model ? (*state.model).name()
                               : described(state.models, [](const NamedModel& one) { return (*one.model).name(); });
  if (state.optimizer)
    manifest.optimizer = class_name(*state.optimizer);
  else if (!state.optimizers.empty())
    manifest.optimizer =
        described(state.optimizers, [](const NamedOptimizer& one) { return class_name(one.optimizer); });
  if (state.loader) {
    const data::SamplerState place = state.loader->state();
    manifest.state[kLoader] = to_text(place);
    manifest.state[kSamples] = fmt::format("{}", place.consumed());
  }
  for (const ExtraState& extra : state.extra) manifest.state[extra.key()] = extra.save();
  return manifest;
}

io::Snapshot take(const TrainingState& state) {
  io::Snapshot snapshot{.manifest = describe(state)};
  for (const auto& [name, tensors] : files_of(state, WholeState(state))) snapshot.tensors.emplace(name, made(tensors));
  return snapshot;
}

io::LoadReport load_weights(torch::nn::Module& model, const io::TensorMap& whole, const io::LoadOptions& options) {
  io::LoadReport report = io::check_fit(saved_layout(model), without_other_layers(model, whole), options);
  const std::set<std::string> skipped(report.skipped.begin(), report.skipped.end());
  for (const auto& item : saved_tensors(model)) {
    const torch::Tensor* found = whole.find(item.key());
    if (!found || skipped.contains(item.key())) continue;
    const auto how = optim::split_of(item.value());
    put_parameter(item.value(), how ? how->cut(optim::piece_of(item.value()), *found) : *found);
  }
  return report;
}

io::TensorMap local_optimizer_state(const io::TensorMap& parameters, const io::TensorMap& whole) {
  io::TensorMap result;
  for (const auto& item : whole) {
    const torch::Tensor* parameter = parameter_like(item.key(), item.value(), parameters);
    const auto how = parameter ? optim::split_of(*parameter) : nullptr;
    result.insert(item.key(), how ? how->cut(*parameter, item.value()) : item.value());
  }
  return result;
}

io::TensorMap local_parts(const io::TensorMap& ours, const io::TensorMap& whole) {
  io::TensorMap result;
  for (const auto& item : whole) {
    const torch::Tensor* mine = ours.find(item.key());
    const auto how = mine ? optim::split_of(*mine) : nullptr;
    result.insert(item.key(), how ? how->cut(*mine, item.value()) : item.value());
  }
  return result;
}

LocalPart local_part(const TrainingState& state) {
  std::map<std::string, LocalFile> files;
  each_model_file(state, [&](const torch::nn::Module& model, const std::string& file) {
    files[file] = {.ours = local_weights(model), .pipeline = as_pipeline(model)};
  });
  each_optimizer_file(state, [&](const torch::optim::Optimizer& optimizer, const std::string& file) {
    const auto [pipeline, prefix] = pipeline_of(state, optimizer);
    files[file] = {.ours = optimized(state), .is_optimizer = true, .pipeline = pipeline, .prefix = prefix};
  });
  if (state.ema) files[kEma] = {.ours = detail::averages(*state.ema)};
  if (state.masters) files[kMasters] = {.ours = named_masters(state)};
  return [files = std::move(files)](const std::string& file, const std::string& name,
                                    const torch::Tensor& whole) -> std::optional<torch::Tensor> {
    const auto found = files.find(file);
    if (found == files.end()) return std::nullopt;
    return found->second.part(name, whole);
  };
}

void check_fit(const TrainingState& state, const io::Snapshot& saved) {
  check(state);
  check_all_are_named(kModel, state.models, saved);
  check_all_are_named(kOptimizer, state.optimizers, saved);
  each_model_file(state, [&](const torch::nn::Module& model, const std::string& file) {
    io::check_fit(saved_layout(model), without_other_layers(model, part(saved.tensors, file, saved.manifest)),
                  {.from = fmt::format("checkpoint {}{}", saved.manifest.name, file == kModel ? "" : ", " + file),
                   .advice = "Is it another model's?"});
  });
}

io::Snapshot take_local(const TrainingState& state) {
  io::Snapshot local{.manifest = describe(state)};
  each_model_file(state, [&](const torch::nn::Module& model, const std::string& file) {
    local.tensors.emplace(file, local_weights(model));
  });
  each_optimizer_file(state, [&](const torch::optim::Optimizer& optimizer, const std::string& file) {
    local.tensors.emplace(file, io::optimizer_state(optimizer, optimized(state)));
  });
  if (state.ema) local.tensors.emplace(kEma, detail::averages(*state.ema));
  if (state.masters) local.tensors.emplace(kMasters, named_masters(state));
  return local;
}

void put_local(const TrainingState& state, const io::Snapshot& local) {
  const io::Manifest& manifest = local.manifest;
  const auto tensors = [&](const std::string& file) -> const io::TensorMap& {
    return part(local.tensors, file, manifest);
  };
  const auto text = [&](const std::string& name) -> const std::string& { return part(manifest.state, name, manifest); };
  each_model_file(state, [&](const torch::nn::Module& model, const std::string& file) {
    for (const auto& item : saved_tensors(model))
      if (const torch::Tensor* found = tensors(file).find(item.key())) put_parameter(item.value(), *found);
  });
  if (state.masters) put_masters(state, tensors(kMasters));
  each_optimizer_file(state, [&](torch::optim::Optimizer& optimizer, const std::string& file) {
    io::load_optimizer_state(optimizer, optimized(state), tensors(file));
  });
  if (state.ema) put_averages(state, tensors(kEma));
  if (state.loader) state.loader->load_state(data::parse_sampler_state(text(kLoader)));
  for (const ExtraState& extra : state.extra)
    if (extra.required || manifest.state.contains(extra.key())) extra.load(text(extra.key()));
}

}  // namespace trireme::detail
