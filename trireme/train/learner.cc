#include "trireme/train/learner.h"

#include <torch/torch.h>

#include <set>

#include "trireme/core/error.h"
#include "trireme/train/step_checks.h"

namespace trireme {
namespace {

void require_distinct_names(const Metrics& metrics) {
  std::set<std::string> seen = {"loss"};
  for (const Held<Metric>& metric : metrics)
    for (const std::string& name : metric->names())
      if (!seen.insert(name).second)
        throw UsageError("Model::prepare: two results are called '{}'; give the metric another name", name);
}

void check(const PrepareOptions& options, const torch::nn::Module& module) {
  require_distinct_names(options.metrics);
  const auto& ready = options.optimizer.ready();
  if (ready && options.amp.level == AmpLevel::O2)
    throw UsageError(
        "Model::prepare: with level O2 the optimizer works on copies of the parameters; give a function that makes it: "
        "[](auto parameters) {{ return torch::optim::Adam(parameters, 1e-3); }}");
  if (ready) train::require_own_parameters("Model::prepare", *ready, module);
}

}  // namespace

Learner::Learner(Network net) : net_(std::move(net)) {
  if (!net_.module || !net_.forward) throw UsageError("Model: the net is a null pointer");
}

void Learner::prepare(const PrepareOptions& options) {
  check(options, *net_.module);
  if (is_low() || options.amp.level == AmpLevel::O2) team_.reset();  // knows the parameters as they were
  if (is_low()) optim::raise_precision(*net_.module, step_ ? step_->masters() : nullptr);
  options_ = options;
  step_.reset();
  optimizer_.reset();
}

void Learner::require_training(const char* who) const {
  if (!options_.optimizer || !options_.loss)
    throw UsageError("Model::{}: there is no {}; call prepare({{.optimizer = …, .loss = …}}) first", who,
                     options_.optimizer ? "loss" : "optimizer");
}

Team& Learner::team() {
  if (!team_ && is_low()) optim::lower_precision(*net_.module, options_.amp.dtype);
  if (!team_) team_.emplace(net_.module);
  return *team_;
}

// The optimizer's state and the averages lie where the net lies, so they are made after it has moved.
void Learner::make_step() {
  if (step_ || !options_.optimizer) return;
  Team& team = this->team();
  optimizer_ = options_.optimizer(net_.module->parameters());
  if (!optimizer_) throw UsageError("Model::prepare: the function for the optimizer returned a null pointer");
  step_.emplace(train::StepModel(net_, team.sync()), *optimizer_,
                train::StepOptions{.loss = options_.loss,
                                   .amp = options_.amp,
                                   .clip_norm = options_.clip_norm,
                                   .ema_decay = options_.ema_decay});
}

train::Step& Learner::step() {
  make_step();
  if (!step_) throw UsageError("Model: there is no optimizer; call prepare({{.optimizer = …}}) first");
  return *step_;
}

Scored Learner::train(const torch::Tensor& input, const torch::Tensor& label, const train::BatchOptions& batch) {
  const torch::Tensor loss = step()(input, label, batch);
  return {step_->output(), loss};
}

torch::Tensor Learner::predict(const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  const torch::Device device = team().device();
  if (net_.module->is_training()) net_.module->eval();
  return train::forward(net_.forward, device, options_.amp, input);
}

Scored Learner::evaluate(const torch::Tensor& input, const torch::Tensor& label) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor output = predict(input);
  if (!options_.loss) return {output, {}};
  return {output, train::one_number(options_.loss(output, label.to(output.device())))};
}

std::unique_ptr<optim::Ema::Applied> Learner::averaged_weights() {
  make_step();
  if (!step_ || step_->ema() == nullptr) return nullptr;
  return std::make_unique<optim::Ema::Applied>(*step_->ema());
}

Meter::Batch Learner::numbers(const Scored& scored, const torch::Tensor& label, int64_t step, int64_t slot) const {
  Meter::Batch batch{.rows = scored.output.size(0), .step = step, .slot = slot};
  if (scored.loss.defined()) batch.losses = {scored.loss};
  batch.sums = measure(options_.metrics, scored.output, label);
  return batch;
}

io::TensorMap Learner::trained_parameters() {
  make_step();
  io::TensorMap tensors = net_.module->named_parameters();
  if (step_ && step_->masters() != nullptr)
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].value() = step_->masters()->parameters()[i];
  return tensors;
}

io::TensorMap Learner::weights() {
  io::TensorMap tensors = io::state_dict(*net_.module);
  for (const auto& item : trained_parameters()) tensors[item.key()] = item.value();
  return tensors;
}

void Learner::load_weights(const io::TensorMap& tensors, const io::LoadOptions& options) {
  const torch::NoGradGuard no_grad;
  make_step();
  team();
  io::load_into(*net_.module, tensors, options);
  if (!step_ || step_->masters() == nullptr) return;
  const auto parameters = net_.module->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor master = step_->masters()->parameters()[i];
    const torch::Tensor* full = tensors.find(parameters[i].key());
    const bool fits = full != nullptr && full->sizes() == master.sizes();
    master.copy_(fits ? *full : parameters[i].value());
  }
}

}  // namespace trireme
