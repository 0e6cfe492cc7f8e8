#include "trireme/parallel/pipeline/plan.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <string>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/parallel/together.h"

namespace trireme::parallel {
namespace {

using torch::Tensor;

const char* cut_name(Cut cut) {
  return cut == Cut::count ? "count" : cut == Cut::parameters ? "parameters" : "time";
}

// What must be equal on all ranks, one thing a line.
std::vector<std::string> agreed_on(const std::vector<PipelineLayer>& layers, const PipelineOptions& options) {
  std::vector<std::string> lines{fmt::format("micro_batches = {}", options.micro_batches),
                                 fmt::format("schedule = {}", name_of(options.schedule)),
                                 fmt::format("chunks = {}", options.chunks),
                                 fmt::format("cut = {}", cut_name(options.cut)),
                                 fmt::format("begins = {}", join(options.begins, " ")),
                                 fmt::format("seed = {}", options.seed),
                                 fmt::format("dynamic_shapes = {}", options.dynamic_shapes),
                                 fmt::format("data of {} ranks", options.data.size()),
                                 fmt::format("shard = {}", options.shard ? detail::describe(*options.shard) : "none"),
                                 detail::describe(options.data_options),
                                 fmt::format("{} layers", layers.size())};
  for (const PipelineLayer& layer : layers) {
    std::string line = fmt::format("layer {}", layer.name());
    for (const auto& [parameter, owner] : layer.options().tied) line += fmt::format(" ({} = {})", parameter, owner);
    lines.push_back(line);
  }
  return lines;
}

// What cannot be is said with this rank's place on the axis.
void at_own_place(const Group& pipe, const std::function<void()>& work) {
  try {
    work();
  } catch (const UsageError& error) {
    throw UsageError("{}: {}", own_place(pipe), error.what());
  }
}

void check_options(const std::vector<PipelineLayer>& layers, const PipelineOptions& options, const Group& pipe) {
  if (options.micro_batches < 1)
    throw UsageError("Pipeline: micro_batches = {}; it must be at least 1, better {} or more on {} ranks",
                     options.micro_batches, 4 * pipe.size(), pipe.size());
  if (options.chunks < 1) throw UsageError("Pipeline: chunks = {}; it must be at least 1", options.chunks);
  if (options.chunks > 1 && options.schedule != Schedule::interleaved)
    throw UsageError("Pipeline: chunks = {} needs Schedule::interleaved, not {}", options.chunks,
                     name_of(options.schedule));
  const size_t stages = static_cast<size_t>(pipe.size()) * static_cast<size_t>(options.chunks);
  if (layers.size() < stages)
    throw UsageError(
        "Pipeline: {} layers are fewer than the {} stages ({} ranks along the axis x {} chunks); take a "
        "shorter axis",
        layers.size(), stages, pipe.size(), options.chunks);
  if (!options.begins.empty() && options.begins.size() != stages)
    throw UsageError("Pipeline: begins names {} layers, but there are {} stages; name the first layer of each",
                     options.begins.size(), stages);
  check_layers(layers);
}

Cuts cuts_by_name(const StagePlan& plan, const std::vector<std::string>& begins) {
  Cuts cuts;
  for (const std::string& name : begins) {
    const int place = plan.find(name);
    if (place < 0)
      throw UsageError("Pipeline: begins names '{}', which is none of the {} layers", name, plan.layers.size());
    if (cuts.empty() ? place != 0 : place <= cuts.back())
      throw UsageError(
          "Pipeline: begins must name first the first layer, '{}', then later ones in their order; '{}' is "
          "number {}",
          plan.layers[0].name(), name, place);
    cuts.push_back(place);
  }
  cuts.push_back(static_cast<int>(plan.layers.size()));
  return cuts;
}

// The first rank of each pipe weighs. No two clocks agree, so the pipes of a data axis take the first one's weights.
Cuts cuts_by_weight(const StagePlan& plan, const PipelineOptions& options, const Group& pipe) {
  std::vector<double> weights(plan.layers.size());
  on_first(pipe, [&] {
    if (options.cut == Cut::time && options.sample.list().empty())
      throw UsageError("Pipeline: Cut::time needs .sample on pipe 0, a micro-batch of inputs to measure with");
    weights = options.cut == Cut::parameters ? parameter_counts(plan)
                                             : measured_seconds(plan, options.sample.list(), options.device.value());
  });
  const Tensor shared = torch::tensor(weights, torch::kDouble);
  if (options.data.is_member()) broadcast(shared, 0, options.data);
  broadcast(shared, 0, pipe);
  const double* const first = shared.const_data_ptr<double>();
  return cut_by_weight({first, first + weights.size()}, plan.shape.stages());
}

}  // namespace

StagePlan plan_of(std::vector<PipelineLayer> layers, const PipelineOptions& options, const Group& pipe) {
  require_same_settings("Pipeline", agreed_on(layers, options), pipe, options.data);
  at_own_place(pipe, [&] { check_options(layers, options, pipe); });
  StagePlan plan{.layers = std::move(layers),
                 .shape = {.ranks = pipe.size(), .chunks = options.chunks, .micro_batches = options.micro_batches},
                 .cuts = {},
                 .seed = options.seed};
  if (!options.begins.empty())
    at_own_place(pipe, [&] { plan.cuts = cuts_by_name(plan, options.begins); });
  else if (options.cut == Cut::count)
    plan.cuts = cut_evenly(static_cast<int>(plan.layers.size()), plan.shape.stages());
  else
    plan.cuts = cuts_by_weight(plan, options, pipe);
  return plan;
}

std::vector<std::shared_ptr<StageModule>> make_stages(const StagePlan& plan, torch::Device device, const Group& pipe) {
  std::vector<std::shared_ptr<StageModule>> stages;
  const Tensor made_before = torch::zeros({1}, torch::kInt);
  together(pipe, [&] { made_before.fill_(has_parameters_made_before(plan, pipe.rank()) ? 1 : 0); });
  all_reduce(made_before, ReduceOp::max, pipe);
  together(pipe, [&] {
    if (made_before.item<int>() != 0) at_own_place(pipe, [&] { require_no_undeclared_sharing(plan); });
    for (int chunk = 0; chunk < plan.shape.chunks; ++chunk)
      stages.push_back(std::make_shared<StageModule>(plan, chunk * plan.shape.ranks + pipe.rank(), device));
  });
  return stages;
}

}  // namespace trireme::parallel
