#include "trireme/train/learner.h"

#include <torch/torch.h>

#include <set>
#include <unordered_set>

#include "trireme/core/error.h"
#include "trireme/optim/optimizers.h"

namespace trireme {
namespace {

void require_own_parameters(const torch::optim::Optimizer& optimizer, const Parameters& own) {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const torch::Tensor& parameter : own) known.insert(parameter.unsafeGetTensorImpl());
  size_t all = 0, foreign = 0;
  for (const torch::Tensor& parameter : optim::parameters_of(optimizer)) {
    ++all;
    foreign += known.contains(parameter.unsafeGetTensorImpl()) ? 0 : 1;
  }
  if (foreign > 0)
    throw UsageError(
        "Model::prepare: {} of the optimizer's {} tensors are no parameters of the net; make it from net->parameters() "
        "of this net, or give a function: [](auto parameters) {{ return torch::optim::Adam(parameters, 1e-3); }}",
        foreign, all);
}

void require_distinct_names(const Metrics& metrics) {
  std::set<std::string> seen = {"loss"};
  for (const Held<Metric>& metric : metrics)
    for (const std::string& name : metric->names())
      if (!seen.insert(name).second)
        throw UsageError("Model::prepare: two results are called '{}'; give the metric another name", name);
}

void check(const PrepareOptions& options, const Parameters& parameters) {
  require_distinct_names(options.metrics);
  const auto& ready = options.optimizer.ready();
  if (ready && options.amp.level == AmpLevel::O2)
    throw UsageError(
        "Model::prepare: with level O2 the optimizer works on copies of the parameters; give a function that makes it: "
        "[](auto parameters) {{ return torch::optim::Adam(parameters, 1e-3); }}");
  if (ready) require_own_parameters(*ready, parameters);
}

torch::Tensor at_full_precision(const torch::Tensor& output) {
  const bool low = output.scalar_type() == torch::kHalf || output.scalar_type() == torch::kBFloat16;
  return low ? output.to(torch::kFloat) : output;
}

}  // namespace

Learner::Learner(Network net) : net_(std::move(net)) {
  if (!net_.module || !net_.forward) throw UsageError("Model: the net is a null pointer");
}

void Learner::prepare(const PrepareOptions& options) {
  check(options, net_.module->parameters());
  if (is_low() || options.amp.level == AmpLevel::O2) team_.reset();  // knows the parameters as they were
  if (is_low()) optim::raise_precision(*net_.module, masters_ ? &*masters_ : nullptr);
  options_ = options;
  optimizer_.reset();
  masters_.reset();
  scaler_.reset();
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

// Masters and the optimizer's state lie where the net lies, so they come after it has moved.
void Learner::get_ready() {
  if (optimizer_ || !options_.optimizer) return;
  Team& team = this->team();
  if (is_low()) masters_.emplace(net_.module->parameters());
  optimizer_ = options_.optimizer(masters_ ? masters_->parameters() : net_.module->parameters());
  if (!optimizer_) throw UsageError("Model::prepare: the function for the optimizer returned a null pointer");
  optim::GradScaler::Options scaler = options_.amp.scaler;
  scaler.enabled = options_.amp.level != AmpLevel::O0 && options_.amp.dtype == torch::kHalf;
  scaler.agree = [&team](torch::Tensor& found) { team.largest(found); };
  scaler_.emplace(scaler);
}

torch::optim::Optimizer& Learner::optimizer() {
  get_ready();
  if (!optimizer_) throw UsageError("Model: there is no optimizer; call prepare({{.optimizer = …}}) first");
  return *optimizer_;
}

void Learner::set_mode(bool training) const {
  if (net_.module->is_training() != training) net_.module->train(training);
}

torch::Tensor Learner::forward(const torch::Tensor& input) {
  const torch::Device device = team().device();
  const optim::Autocast precision(
      {.device = device.type(), .dtype = options_.amp.dtype, .enabled = options_.amp.level != AmpLevel::O0});
  return at_full_precision(net_.forward(input.to(device)));
}

torch::Tensor Learner::loss(const torch::Tensor& output, const torch::Tensor& label) const {
  const torch::Tensor loss = options_.loss(output, label.to(output.device()));
  if (loss.numel() != 1)
    throw UsageError("Model: the loss has {} elements; it must be one number, the average over the batch",
                     loss.numel());
  return loss;
}

Scored Learner::train(const torch::Tensor& input, const torch::Tensor& label, const TrainStep& step) {
  get_ready();
  set_mode(true);
  const auto local = team().gradients(step.update);
  const torch::Tensor output = forward(input);
  const torch::Tensor mean = loss(output, label);
  scaler_->scale(step.share == 1 ? mean : mean * step.share).backward();
  if (step.update) update();
  return {output.detach(), mean.detach()};
}

void Learner::update() {
  if (masters_) masters_->take_gradients();
  scaler_->step(*optimizer_);
  scaler_->update();
  if (masters_) masters_->write_back();
  forget_gradients();
}

void Learner::forget_gradients() {
  optim::zero_grad(optimizer());
  optim::zero_grad(net_.module->parameters());
}

Scored Learner::evaluate(const torch::Tensor& input, const torch::Tensor& label) {
  const torch::NoGradGuard no_grad;
  set_mode(false);
  const torch::Tensor output = forward(input);
  return {output, options_.loss ? loss(output, label) : torch::Tensor()};
}

torch::Tensor Learner::predict(const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  set_mode(false);
  return forward(input);
}

io::TensorMap Learner::trained_parameters() {
  get_ready();
  io::TensorMap tensors = net_.module->named_parameters();
  if (masters_)
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].value() = masters_->parameters()[i];
  return tensors;
}

io::TensorMap Learner::weights() {
  io::TensorMap tensors = io::state_dict(*net_.module);
  for (const auto& item : trained_parameters()) tensors[item.key()] = item.value();
  return tensors;
}

void Learner::load_weights(const io::TensorMap& tensors, const io::LoadOptions& options) {
  const torch::NoGradGuard no_grad;
  get_ready();
  team();
  io::load_into(*net_.module, tensors, options);
  if (!masters_) return;
  const auto parameters = net_.module->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor master = masters_->parameters()[i];
    const torch::Tensor* full = tensors.find(parameters[i].key());
    const bool fits = full != nullptr && full->sizes() == master.sizes();
    master.copy_(fits ? *full : parameters[i].value());
  }
}

}  // namespace trireme
