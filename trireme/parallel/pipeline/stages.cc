#include "trireme/parallel/pipeline/stages.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/optim/split_tensors.h"

namespace trireme::parallel {
namespace {

using detail::Tensors;
using torch::Tensor;
using torch::TensorImpl;
using WeakTensor = c10::weak_intrusive_ptr<TensorImpl, c10::UndefinedTensorImpl>;

// Numbers that follow each other give seeds that have nothing in common (splitmix64).
uint64_t seed_of(uint64_t seed, int layer) {
  uint64_t x = seed + 0x9e3779b97f4a7c15ULL * (static_cast<uint64_t>(layer) + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The state of the CPU's random numbers is as it was when it ends.
class RandomNumbersStay {
 public:
  RandomNumbersStay() : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~RandomNumbersStay() { generator_.set_state(state_); }
  RandomNumbersStay(const RandomNumbersStay&) = delete;
  RandomNumbersStay& operator=(const RandomNumbersStay&) = delete;
  void set_seed(uint64_t seed) { generator_.set_current_seed(seed); }

 private:
  at::Generator generator_;
  Tensor state_;
};

struct Lingering {
  std::string name;
  c10::intrusive_ptr<TensorImpl, c10::UndefinedTensorImpl> tensor;  // held, so that no other gets its address
};

// Parameters that live on when the layer that was made is gone.
std::vector<Lingering> made_before(const StagePlan& plan, int layer) {
  std::vector<std::pair<std::string, WeakTensor>> all;
  {
    const detail::LayerModule made = make_layer(plan, layer);
    for (const auto& item : made.module->named_parameters())
      all.emplace_back(plan.layers[static_cast<size_t>(layer)].name() + "." + item.key(),
                       WeakTensor(item.value().getIntrusivePtr()));
  }
  std::vector<Lingering> alive;
  for (const auto& [name, weak] : all)
    if (auto tensor = weak.lock()) alive.push_back({name, std::move(tensor)});
  return alive;
}

bool are_tied(const StagePlan& plan, const std::string& one, const std::string& other) {
  for (const PipelineLayer& layer : plan.layers)
    for (const auto& [parameter, owner] : layer.options().tied) {
      const std::string name = layer.name() + "." + parameter;
      if ((name == one && owner == other) || (name == other && owner == one)) return true;
    }
  return false;
}

void check_tie(const PipelineLayer& layer, const std::string& parameter, const std::string& owner,
               const std::map<std::string, const PipelineLayer*>& layers) {
  const size_t dot = owner.find('.');
  const auto found = layers.find(owner.substr(0, dot));
  if (dot == std::string::npos || found == layers.end())
    throw UsageError("Pipeline: {}.{} is tied to '{}', but no layer has that name; write \"layer.parameter\"",
                     layer.name(), parameter, owner);
  if (found->second == &layer)
    throw UsageError("Pipeline: {}.{} is tied to '{}' of the same layer; share it inside of the layer", layer.name(),
                     parameter, owner);
  if (found->second->options().tied.contains(owner.substr(dot + 1)))
    throw UsageError("Pipeline: {}.{} is tied to '{}', which is tied to '{}' itself; name that one", layer.name(),
                     parameter, owner, found->second->options().tied.at(owner.substr(dot + 1)));
}

// With gradients, but no leaves: operations in place are allowed on them.
Tensors copies(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& tensor : tensors)
    result.push_back(tensor.is_floating_point() ? tensor.detach().requires_grad_().clone() : tensor.clone());
  return result;
}

Tensors run_layer(const detail::LayerModule& layer, bool recompute, const Tensors& inputs) {
  return recompute ? detail::recomputed(layer.forward, inputs) : layer.forward(inputs);
}

}  // namespace

int StagePlan::stage_of(int layer) const {
  return static_cast<int>(std::upper_bound(cuts.begin(), cuts.end(), layer) - cuts.begin()) - 1;
}

int StagePlan::find(const std::string& layer) const {
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].name() == layer) return static_cast<int>(i);
  return -1;
}

std::string StagePlan::describe_stage(int stage) const {
  const auto first = static_cast<size_t>(cuts[static_cast<size_t>(stage)]);
  const auto last = static_cast<size_t>(cuts[static_cast<size_t>(stage) + 1]) - 1;
  if (first == last) return fmt::format("layer {}", layers[first].name());
  return fmt::format("layers {} to {}", layers[first].name(), layers[last].name());
}

detail::LayerModule make_layer(const StagePlan& plan, int layer) {
  RandomNumbersStay random;
  random.set_seed(seed_of(plan.seed, layer));
  detail::LayerModule made = plan.layers[static_cast<size_t>(layer)].make();
  if (!made.module)
    throw UsageError("Pipeline: the function of layer '{}' returns no module; return one, or drop the layer",
                     plan.layers[static_cast<size_t>(layer)].name());
  return made;
}

StageModule::StageModule(const StagePlan& plan, int stage, torch::Device device)
    : torch::nn::Module("Stage"), stage_(stage), first_layer_(plan.cuts[static_cast<size_t>(stage)]) {
  for (int i = first_layer_; i < plan.cuts[static_cast<size_t>(stage) + 1]; ++i) {
    const PipelineLayer& layer = plan.layers[static_cast<size_t>(i)];
    parts_.push_back({make_layer(plan, i), layer.options().recompute});
    parts_.back().layer.module->to(device);
    register_module(layer.name(), parts_.back().layer.module);
  }
}

std::unique_ptr<detail::SeededRandom> BatchRandom::of(int layer, int micro_batch) const {
  if (!seed) return nullptr;
  const uint64_t place = (static_cast<uint64_t>(micro_batch) << 32) | static_cast<uint64_t>(layer);
  return std::make_unique<detail::SeededRandom>(*seed, place);
}

std::vector<Tensor> StageModule::forward(std::vector<Tensor> tensors, const BatchRandom& random, int micro_batch) {
  int layer = first_layer_;
  for (const Part& part : parts_) {
    const auto own = random.of(layer++, micro_batch);
    tensors = run_layer(part.layer, part.recompute, tensors);
  }
  return tensors;
}

void check_layers(const std::vector<PipelineLayer>& layers) {
  std::map<std::string, const PipelineLayer*> by_name;
  for (const PipelineLayer& layer : layers) {
    if (layer.name().empty() || layer.name().find('.') != std::string::npos)
      throw UsageError("Pipeline: '{}' cannot be the name of a layer; it must be a word without dots", layer.name());
    if (!by_name.emplace(layer.name(), &layer).second)
      throw UsageError(
          "Pipeline: two layers are named '{}'; give each a name of its own, by which its parameters are known",
          layer.name());
  }
  for (const PipelineLayer& layer : layers)
    for (const auto& [parameter, owner] : layer.options().tied) check_tie(layer, parameter, owner, by_name);
}

bool has_parameters_made_before(const StagePlan& plan, int rank) {
  bool any = false;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i)
    if (plan.rank_of(i) == rank) any = !made_before(plan, i).empty() || any;
  return any;
}

void require_no_undeclared_sharing(const StagePlan& plan) {
  std::map<const TensorImpl*, std::string> seen;
  std::vector<Lingering> held;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i)
    for (const Lingering& one : made_before(plan, i)) {
      held.push_back(one);
      const auto [found, is_new] = seen.emplace(one.tensor.get(), one.name);
      const std::string& other = found->second;
      const std::string prefix = plan.layers[static_cast<size_t>(i)].name() + ".";
      if (is_new || other.starts_with(prefix) || are_tied(plan, one.name, other)) continue;
      throw UsageError(
          "Pipeline: {} and {} are one tensor, but layers of different stages cannot share memory; make each layer "
          "inside of its function, and declare the sharing by .tied = {{{{\"{}\", \"{}\"}}}} in the options of layer "
          "'{}'",
          other, one.name, one.name.substr(prefix.size()), other, plan.layers[static_cast<size_t>(i)].name());
    }
}

std::vector<double> parameter_counts(const StagePlan& plan) {
  std::vector<double> counts;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    int64_t count = 0;
    for (const Tensor& parameter : make_layer(plan, i).module->parameters()) count += parameter.numel();
    counts.push_back(static_cast<double>(count));
  }
  return counts;
}

// Each line of the model axis would measure by a clock of its own, and might cut elsewhere.
void require_no_split_layer(const StagePlan& plan, int layer, const detail::LayerModule& made) {
  for (const auto& item : made.module->named_parameters()) {
    const auto split = optim::split_of(item.value());
    if (split && split->ranks.size() > 1)
      throw UsageError(
          "Pipeline: Cut::time cannot measure layer '{}': its {} is split over {} ranks, whose clocks may cut the "
          "layers at different places; take Cut::parameters, or name the first layers of the stages by .begins",
          plan.layers[static_cast<size_t>(layer)].name(), item.key(), split->ranks.size());
  }
}

std::vector<double> measured_seconds(const StagePlan& plan, const std::vector<Tensor>& sample, torch::Device device) {
  using Clock = std::chrono::steady_clock;
  const RandomNumbersStay random;
  std::vector<double> seconds;
  Tensors inputs = sample;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const detail::LayerModule layer = make_layer(plan, i);
    require_no_split_layer(plan, i, layer);
    layer.module->to(device);
    const bool recompute = plan.layers[static_cast<size_t>(i)].options().recompute;
    double best = 0;
    Tensors outputs;
    for (int repetition = 0; repetition < 3; ++repetition) {  // the first ones warm up
      const Tensors fresh = copies(inputs);                   // a layer may work in place
      const auto begin = Clock::now();
      outputs = run_layer(layer, recompute, fresh);
      Tensor sum;
      for (const Tensor& output : outputs)
        if (output.requires_grad()) sum = sum.defined() ? sum + output.sum() : output.sum();
      if (sum.defined()) {
        sum.backward();
        static_cast<void>(sum.detach().cpu());  // a GPU has finished
      }
      const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
      best = repetition == 0 ? taken : std::min(best, taken);
    }
    seconds.push_back(best);
    inputs.clear();
    for (const Tensor& output : outputs) inputs.push_back(output.detach());
  }
  return seconds;
}

}  // namespace trireme::parallel
