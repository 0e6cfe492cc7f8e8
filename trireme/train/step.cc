#include "trireme/train/step.h"

#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "trireme/comm/collectives.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/describe_options.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/optim/tensors.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/train/channels_last.h"
#include "trireme/train/step_graph.h"
#include "trireme/train/step_parts.h"
#include "trireme/watch/recorder.h"

namespace trireme::train {
namespace {

optim::Autocast autocast(torch::Device device, const AmpOptions& amp) {
  return optim::Autocast({.device = device.type(), .dtype = amp.dtype, .enabled = amp.level != AmpLevel::O0});
}

void require_low_weights(const torch::nn::Module& module) {
  for (const torch::Tensor& parameter : module.parameters())
    if (optim::is_low_precision(parameter.scalar_type())) return;
  throw UsageError(
      "train::Step: level O2 needs weights in low precision; call optim::lower_precision(*net, dtype) before "
      "DataParallel and before the optimizer is made, or give ShardedDataParallel a param_dtype");
}

StepOptions checked(StepOptions options, const StepModel& model, const torch::optim::Optimizer& optimizer) {
  if (!model.module) throw UsageError("train::Step: the model is a null pointer");
  if (options.clip_norm && !(*options.clip_norm > 0))
    throw UsageError("train::Step: clip_norm is {}; it must be above 0", *options.clip_norm);
  require_own_parameters("train::Step", optimizer, *model.module);
  if (const std::string complaint = optim::complaint_about_parts(optimizer); !complaint.empty())
    throw UsageError("train::Step: {}", complaint);
  if (options.amp.level == AmpLevel::O2) require_low_weights(*model.module);
  return options;
}

// Before averages and float32 copies are made after the weights.
StepModel laid_out(StepModel model, const StepOptions& options) {
  if (options.channels_last && options.loss && model.module && model.forward)
    model.forward = with_channels_last(model.module, std::move(model.forward));
  return model;
}

optim::GradScaler::Options scaler_options(const AmpOptions& amp, const std::shared_ptr<GradientExchange>& sync) {
  optim::GradScaler::Options options = amp.scaler;
  options.enabled = amp.level != AmpLevel::O0 && amp.dtype == torch::kHalf;
  if (sync && sync->group().size() > 1)
    options.agree = [sync](torch::Tensor& found) { all_reduce(found, ReduceOp::max, sync->group()); };
  return options;
}

/// Why no step of this model can have a graph.
std::string why_no_graph(const StepModel& model, const torch::Device& device) {
  if (env::get("TRIREME_GRAPH") == "0") return "TRIREME_GRAPH is 0";
  if (model.sync && model.sync->group().size() > 1)
    return fmt::format("gradients are averaged over {} ranks", model.sync->group().size());
  if (std::dynamic_pointer_cast<ShardSync>(model.sync)) return "the model is a ShardedDataParallel";
  if (!device.is_cuda()) return "the model is not on a GPU";
  return "";
}

void scale_gradients(const std::vector<torch::Tensor>& parameters, double factor) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : parameters)
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
}

// A number for each gradient that changes with its values.
std::vector<int64_t> gradient_versions(const std::vector<torch::Tensor>& parameters) {
  std::vector<int64_t> versions;
  for (const torch::Tensor& parameter : parameters)
    versions.push_back(parameter.grad().defined() ? parameter.grad()._version() : -1);
  return versions;
}

}  // namespace

bool is_split(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const torch::Tensor& parameter) { return optim::split_of(parameter) != nullptr; });
}

void require_own_parameters(const char* who, const torch::optim::Optimizer& optimizer,
                            const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> own;
  for (const torch::Tensor& parameter : module.parameters())
    own.insert(optim::piece_of(parameter).unsafeGetTensorImpl());
  const std::vector<torch::Tensor> all = optim::parameters_of(optimizer);
  const auto foreign = std::count_if(all.begin(), all.end(), [&](const torch::Tensor& parameter) {
    return !own.contains(parameter.unsafeGetTensorImpl());
  });
  if (foreign > 0)
    throw UsageError(
        "{}: {} of the optimizer's {} tensors are not parameters of the net; make the optimizer from {} of this net",
        who, foreign, all.size(),
        is_split(module) ? "model.parameters(), not model->parameters()," : "net->parameters()");
}

std::vector<torch::Tensor> stepped_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> pieces;
  for (const torch::Tensor& parameter : module.parameters()) pieces.push_back(optim::piece_of(parameter));
  return pieces;
}

const torch::Tensor& one_number(const torch::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1)
    throw UsageError("train::Step: the loss has {} elements; it must be one number, the average over the batch",
                     loss.defined() ? loss.numel() : 0);
  return loss;
}

Tensors on_device(const Tensors& tensors, torch::Device device) {
  Tensors moved;
  for (const torch::Tensor& tensor : tensors) moved.push_back(tensor.to(device));
  return moved;
}

Tensors forward_pass(const Forward& forward, torch::Device device, const AmpOptions& amp, const Tensors& inputs) {
  const optim::Autocast precision = autocast(device, amp);
  Tensors outputs = forward(on_device(inputs, device));
  if (outputs.empty()) throw UsageError("the network's forward() returned an empty list; it must return an output");
  for (torch::Tensor& output : outputs)
    if (optim::is_low_precision(output.scalar_type())) output = output.to(torch::kFloat);
  return outputs;
}

Step::Step(StepModel model, torch::optim::Optimizer& optimizer, StepOptions options)
    : model_(laid_out(std::move(model), options)),
      optimizer_(optimizer),
      options_(checked(std::move(options), model_, optimizer)),
      parameters_(model_.module->parameters()),
      device_(parameters_.empty() ? torch::Device(torch::kCPU) : parameters_[0].device()),
      scaler_(scaler_options(options_.amp, model_.sync)) {
  if (options_.graph) make_graph();
  set_accumulate(options_.accumulate);
  if (options_.amp.level == AmpLevel::O2) {
    masters_.emplace(stepped_parameters(*model_.module));
    masters_->adopt(optimizer_);
  }
  if (options_.ema_decay) ema_.emplace(*model_.module, optim::Ema::Options{.decay = *options_.ema_decay});
}

Step::~Step() = default;

void Step::make_graph() {
  const std::string reason = why_no_graph(model_, device_);
  if (reason.empty())
    graph_ = std::make_unique<StepGraph>(model_.module);
  else
    say_no_graph(reason);
}

// Each reason once. Also where there can be no graph anyway: there may be one on the next machine.
void Step::say_no_graph(const std::string& reason) {
  if (!options_.graph || !without_graph_.insert(reason).second) return;
  log_info("train::Step: no CUDA graph: {}; steps run one operator after the other", reason);
}

torch::Tensor Step::operator()(const torch::Tensor& input, const torch::Tensor& label, const BatchOptions& batch) {
  return (*this)(Tensors{input}, Tensors{label}, batch);
}

torch::Tensor Step::operator()(const Tensors& inputs, const Tensors& labels, const BatchOptions& batch) {
  if (!options_.loss || !model_.forward)
    throw UsageError(
        "train::Step: step(x, y) needs {}, or use step([&] {{ return loss; }})",
        options_.loss ? "a net whose forward takes tensors" : "a loss: Step(model, optimizer, {.loss = …})");
  if (inputs.empty()) throw UsageError("train::Step: the list of inputs is empty");
  const int64_t samples = batch.samples.value_or(inputs[0].size(0));
  const bool is_whole_group = pending_ == 0 && options_.accumulate == 1 && batch.update.value_or(true);
  if (graph_ && is_whole_group) return run_graph(inputs, labels, samples);
  if (!batch.update.value_or(true)) say_no_graph("a batch has .update = false, which leaves its group open");
  return run([&] { return loss_of(inputs, labels); }, samples, batch.update);
}

torch::Tensor Step::loss_of(const Tensors& inputs, const Tensors& labels) {
  const Tensors outputs = forward_pass(model_.forward, device_, options_.amp, inputs);
  outputs_.clear();
  for (const torch::Tensor& output : outputs) outputs_.push_back(output.detach());
  return options_.loss(outputs, on_device(labels, outputs[0].device()));
}

torch::Tensor Step::run_graph(const Tensors& inputs, const Tensors& labels, int64_t samples) {
  if (samples < 1) throw UsageError("train::Step: a batch has {} samples; it must have at least 1", samples);
  if (!model_.module->is_training()) model_.module->train();
  steps_.begin_step();
  begin_group();
  weight_of(samples, /*last=*/true);
  StepGraph::Result result =
      graph_->run({on_device(inputs, device_), on_device(labels, device_)}, [this](const StepGraph::Batch& batch) {
        torch::Tensor mean;
        graph_->watch_forward([&] { mean = forward([&] { return loss_of(batch.inputs, batch.labels); }); });
        scaler_.scale(mean).backward();
        return StepGraph::Result{mean.detach(), outputs_};
      });
  outputs_ = std::move(result.outputs);
  ++pending_;
  update_ = apply_gradients();
  return result.loss;
}

torch::Tensor Step::run_autocast(const LossFunction& loss, const BatchOptions& batch) {
  say_no_graph("step([&] { … }) runs a function of the program; give a loss, and call step(x, y)");
  const auto in_precision = [&] {
    const optim::Autocast precision = autocast(device_, options_.amp);
    return loss();
  };
  return run(in_precision, batch.samples.value_or(1), batch.update);
}

torch::Tensor Step::run(const LossFunction& loss, int64_t samples, std::optional<bool> update) {
  if (samples < 1) throw UsageError("train::Step: a batch has {} samples; it must have at least 1", samples);
  if (!model_.module->is_training()) model_.module->train();
  steps_.begin_step();
  if (pending_ == 0) begin_group();
  const bool last = update.value_or(pending_ + 1 >= options_.accumulate);
  std::optional<NoSync> local;
  if (!last && model_.sync) local.emplace(model_.sync);
  const torch::Tensor mean = forward(loss);
  const double weight = weight_of(samples, last);
  scaler_.scale(weight == 1 ? mean : mean * weight).backward();
  ++pending_;
  update_ = last ? apply_gradients() : Update::none;
  return mean.detach();
}

// The phases are for the launcher, which tells where a rank is that others wait for; backward() records its own.
torch::Tensor Step::forward(const LossFunction& loss) {
  const watch::PhaseScope phase(watch::Phase::forward);
  return one_number(loss());
}

void Step::begin_group() {
  if (gradient_versions(parameters_) != dropped_) drop_gradients();
  follow_weights();
}

// Weights may be loaded at any time. While the averages are applied, the model holds no weights to follow.
void Step::follow_weights() {
  if (ema_ && ema_->applied()) return;
  if (masters_) masters_->follow_weights();
  if (ema_) ema_->follow_weights();
}

optim::Ema* Step::ema() {
  follow_weights();
  return ema_ ? &*ema_ : nullptr;
}

optim::MasterWeights* Step::masters() {
  follow_weights();
  return masters_ ? &*masters_ : nullptr;
}

// The weight of a batch is its share of the samples of its group, which are known only with the last batch. Until then
// all batches are taken to be as large as the first; if they are not, the gradients so far are corrected before the
// last backward averages them over the ranks.
double Step::weight_of(int64_t samples, bool last) {
  if (pending_ == 0) {
    samples_ = 0;
    expected_samples_ = last ? samples : samples * options_.accumulate;
  }
  samples_ += samples;
  if (last && samples_ != expected_samples_) {
    scale_gradients(parameters_, static_cast<double>(expected_samples_) / static_cast<double>(samples_));
    expected_samples_ = samples_;
  }
  return static_cast<double>(samples) / static_cast<double>(expected_samples_);
}

Update Step::apply_gradients() {
  const watch::PhaseScope phase(watch::Phase::optimizer);
  if (masters_) masters_->take_gradients();
  if (options_.clip_norm || options_.before_update) scaler_.unscale_(optimizer_);
  if (options_.clip_norm) optim::clip_grad_norm(optim::parameters_of(optimizer_), *options_.clip_norm);
  if (options_.before_update) options_.before_update();
  compare_options();
  const bool stepped = scaler_.step(optimizer_);
  scaler_.update();
  if (masters_) masters_->write_back();
  drop_gradients();
  if (ema_ && stepped) ema_->update();
  return stepped ? Update::done : Update::skipped;
}

// At updates 1, 2, 4, 8 and so on. Ranks that step a part of the weights each would part without any difference in what
// they share.
void Step::compare_options() {
  if (!model_.sync || model_.sync->group().size() == 1 || !std::has_single_bit(++updates_)) return;
  parallel::require_same_settings("train::Step", optim::describe_options(optimizer_), model_.sync->group());
}

void Step::set_accumulate(int64_t batches) {
  if (batches < 1) throw UsageError("train::Step: accumulate is {}; it must be at least 1", batches);
  options_.accumulate = batches;
  if (batches > 1) say_no_graph(fmt::format("accumulate is {}", batches));
}

void Step::drop_gradients() {
  optim::zero_grad(optimizer_);
  optim::zero_grad(parameters_);
  dropped_ = gradient_versions(parameters_);
  pending_ = 0;
}

TrainingState Step::state() {
  const auto save = [this] {
    if (pending_ != 0)
      throw UsageError(
          "train::Step: a checkpoint in the middle of a group, after {} of {} batches; gradients are not saved: save "
          "when pending() is 0",
          pending_, options_.accumulate);
    return scaler_.state_text();
  };
  return {.model = *model_.module,
          .optimizer = optimizer_,
          .ema = ema(),
          .masters = masters(),
          .extra = {{"scaler", save, [this](const std::string& text) { scaler_.load_state(text); }}}};
}

}  // namespace trireme::train
