#include "trireme/train/learner.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/train/channels_last.h"
#include "trireme/train/step_parts.h"

namespace trireme::train {
namespace {

void require_distinct_names(const Metrics& metrics) {
  std::set<std::string> seen = {"loss"};
  for (const MetricUse& metric : metrics)
    for (const std::string& name : metric->names())
      if (!seen.insert(name).second)
        throw UsageError("Model::prepare: two results are called '{}'; give the metric another name", name);
}

void check(const PrepareOptions& options, const torch::nn::Module& module) {
  require_distinct_names(options.metrics);
  const auto& ready = options.optimizer.ready();
  if (ready && options.shard)
    throw UsageError(
        "Model::prepare: with .shard the optimizer works on this rank's pieces of the parameters; give a function that "
        "makes it: [](auto parameters) {{ return torch::optim::Adam(parameters, 1e-3); }}");
  if (options.shard && options.shard->param_dtype && options.amp.level == AmpLevel::O0)
    throw UsageError(
        "Model::prepare: .shard has a param_dtype ({}), but .amp is level O0; parameters of low precision need level "
        "O1 or O2",
        c10::toString(*options.shard->param_dtype));
  if (ready && options.amp.level == AmpLevel::O2)
    throw UsageError(
        "Model::prepare: with level O2 the optimizer works on copies of the parameters; give a function that makes it: "
        "[](auto parameters) {{ return torch::optim::Adam(parameters, 1e-3); }}");
  if (ready) require_own_parameters("Model::prepare", *ready, module);
}

Tensors by_name(const data::Batch& batch, const std::vector<std::string>& names) {
  Tensors tensors;
  for (const std::string& name : names) tensors.push_back(batch[name]);
  return tensors;
}

/// The defined ones: a sample may have no label.
Tensors all_but(const data::Batch& batch, const std::vector<std::string>& names) {
  Tensors tensors;
  for (size_t i = 0; i < batch.size(); ++i)
    if (batch.tensor(i).defined() && std::find(names.begin(), names.end(), batch.names()[i]) == names.end())
      tensors.push_back(batch.tensor(i));
  return tensors;
}

/// The tensors of a file that a module has taken over, of those that `names` has.
io::TensorMap taken_over(const io::TensorMap& tensors, const io::TensorMap& names, const io::LoadReport& report) {
  const std::set<std::string> skipped(report.skipped.begin(), report.skipped.end());
  io::TensorMap taken;
  for (const auto& item : tensors)
    if (names.contains(item.key()) && !skipped.contains(item.key())) taken.insert(item.key(), item.value());
  return taken;
}

// A network that is split over the ranks could not be put back when it cannot compute channels last.
bool lays_out(const PrepareOptions& options) {
  return options.channels_last && !options.shard;
}

}  // namespace

Learner::Learner(Network net, TensorNames names) : net_(std::move(net)), names_(std::move(names)) {
  if (!net_.module) throw UsageError("Model: the net is a null pointer");
  const size_t named = names_.inputs.size();
  if (named > 0 && (named < net_.inputs.least || named > net_.inputs.most))
    throw UsageError("Model: .inputs names {} tensors ({}), and the network's forward() takes {}", named,
                     join(names_.inputs, ", "), detail::count_text(net_.inputs));
}

void Learner::prepare(const PrepareOptions& options) {
  check(options, *net_.module);
  end_sharding();
  const bool other_layout = lays_out(options) != lays_out(options_);
  // Knows the parameters as they were.
  if (is_low() || options.amp.level == AmpLevel::O2 || options.shard || other_layout) ranks_.reset();
  if (is_low()) optim::raise_precision(*net_.module, step_ ? step_->masters() : nullptr);
  if (forward_ && other_layout && lays_out(options_)) to_usual_order(*net_.module);
  if (!ranks_) forward_ = {};
  options_ = options;
  step_.reset();
  optimizer_.reset();
  if (options.optimizer && !unread_optimizer_.empty())
    log_warning(
        "[train] the optimizer starts without its saved state: load() came before prepare() and has not read {}. Call "
        "load() after prepare() to go on with that state, or with {{.reset_optimizer = true}} if it is not wanted",
        std::exchange(unread_optimizer_, {}).string());
}

void Learner::require_training(const char* who) const {
  if (!options_.optimizer || !options_.loss)
    throw UsageError("Model::{}: there is no {}; call prepare({{.optimizer = …, .loss = …}}) first", who,
                     options_.optimizer ? "loss" : "optimizer");
}

// The parameters get memory of their own again, and the digits of the optimizer's copies.
void Learner::end_sharding() {
  if (!options_.shard || !ranks_) return;
  io::TensorMap values;
  for (const auto& item : trireme::detail::made(weights(whole_state())))
    values.insert(item.key(), item.value().detach().clone());
  step_.reset();
  optimizer_.reset();
  ranks_.reset();
  for (auto& item : net_.module->named_parameters()) {
    item.value().mutable_grad().reset();
    item.value().set_data(values[item.key()].to(item.value().device()));
  }
}

// Before averages and copies are made after the weights.
void Learner::lay_out() {
  if (forward_) return;
  forward_ = lays_out(options_) ? with_channels_last(net_.module, net_.forward) : net_.forward;
}

Ranks& Learner::ranks() {
  lay_out();
  const bool lowered_by_shard = options_.shard && options_.shard->param_dtype;
  if (!ranks_ && is_low() && !lowered_by_shard) optim::lower_precision(*net_.module, options_.amp.dtype);
  if (!ranks_) ranks_.emplace(net_.module, options_.shard);
  return *ranks_;
}

// The optimizer's state and the averages lie where the net lies, so they are made after it has moved.
void Learner::make_step() {
  if (step_ || !options_.optimizer) return;
  ranks();
  optimizer_ = options_.optimizer(stepped_parameters(*net_.module));
  if (!optimizer_) throw UsageError("Model::prepare: the function for the optimizer returned a null pointer");
  step_.emplace(step_model(), *optimizer_,
                StepOptions{.loss = options_.loss,
                            .amp = options_.amp,
                            .clip_norm = options_.clip_norm,
                            .ema_decay = options_.ema_decay,
                            .graph = options_.graph,
                            .channels_last = false});  // lay_out() has seen to it
}

StepModel Learner::step_model() {
  Network net = net_;
  const std::shared_ptr<GradientExchange> sync = ranks().sync();
  net.forward = forward_;
  return {std::move(net), sync};
}

Step& Learner::step() {
  make_step();
  if (!step_) throw UsageError("Model: there is no optimizer; call prepare({{.optimizer = …}}) first");
  return *step_;
}

std::vector<std::string> Learner::input_names(const data::Batch& batch) const {
  if (!names_.inputs.empty()) return names_.inputs;
  if (net_.inputs.most > detail::kMaxInputs)
    throw UsageError("Model: the network's forward() takes a list; name its tensors, Model(net, {{.inputs = {{…}}}})");
  if (batch.size() < net_.inputs.least)
    throw UsageError(
        "Model: the network takes {} inputs, and the samples have {} tensors ({}); give samples of inputs, then labels",
        detail::count_text(net_.inputs), batch.size(), join(batch.names(), ", "));
  return {batch.names().begin(), batch.names().begin() + static_cast<std::ptrdiff_t>(net_.inputs.least)};
}

Tensors Learner::inputs_of(const data::Batch& batch) const {
  return by_name(batch, input_names(batch));
}

ModelBatch Learner::split(const data::Batch& batch) const {
  ModelBatch split{
      .inputs = inputs_of(batch),
      .labels = names_.labels.empty() ? all_but(batch, input_names(batch)) : by_name(batch, names_.labels)};
  if (options_.loss.takes_one() && split.labels.size() != 1)
    throw UsageError(
        "Model: the samples have {} tensors ({}): {} for the network and {} labels, and the loss takes one output and "
        "one label; name the label, Model(net, {{.labels = {{\"{}\"}}}}), or give a loss that takes lists, [](const "
        "train::Tensors& outputs, const train::Tensors& labels) {{ … }}",
        batch.size(), join(batch.names(), ", "), split.inputs.size(), split.labels.size(), batch.names().back());
  return split;
}

Scored Learner::train(const ModelBatch& batch, const BatchOptions& options) {
  const torch::Tensor loss = step()(batch.inputs, batch.labels, options);
  return {step_->outputs(), loss};
}

Tensors Learner::predict(const Tensors& inputs) {
  const torch::NoGradGuard no_grad;
  const Ranks& ranks = this->ranks();
  if (net_.module->is_training()) net_.module->eval();
  return forward_pass(step_model().forward, ranks.device(), options_.amp, inputs);
}

Scored Learner::evaluate(const ModelBatch& batch) {
  const torch::NoGradGuard no_grad;
  const Tensors outputs = predict(batch.inputs);
  if (!options_.loss) return {outputs, {}};
  return {outputs, one_number(options_.loss(outputs, on_device(batch.labels, outputs[0].device())))};
}

std::unique_ptr<optim::Ema::Applied> Learner::averaged_weights() {
  make_step();
  if (!step_ || step_->ema() == nullptr) return nullptr;
  return std::make_unique<optim::Ema::Applied>(*step_->ema());
}

EvaluationWeights Learner::evaluation_weights() {
  EvaluationWeights weights{.averaged = averaged_weights()};
  weights.whole = ranks().whole_weights();
  return weights;
}

Meter::Batch Learner::numbers(const Scored& scored, const ModelBatch& batch, int64_t step, int64_t slot) const {
  Meter::Batch numbers{.rows = batch.inputs[0].size(0), .step = step, .slot = slot};
  if (scored.loss.defined()) numbers.losses = {scored.loss};
  numbers.sums = measure(options_.metrics, scored.outputs, batch.labels);
  return numbers;
}

io::TensorMap Learner::trained_parameters() {
  make_step();
  io::TensorMap tensors = net_.module->named_parameters();
  optim::MasterWeights* masters = step_ ? step_->masters() : nullptr;
  for (size_t i = 0; i < tensors.size(); ++i)
    tensors[i].value() = masters ? masters->parameters()[i] : optim::piece_of(tensors[i].value());
  return tensors;
}

TrainingState Learner::state() {
  ranks();
  make_step();
  return step_ ? step_->state() : TrainingState{.model = *net_.module};
}

trireme::detail::WholeState Learner::whole_state() {
  return trireme::detail::WholeState(state());
}

trireme::detail::WholeTensors Learner::weights(const trireme::detail::WholeState& whole) const {
  std::map<std::string, trireme::detail::WholeTensor> masters;
  for (const auto& master : whole.masters()) masters.emplace(master.name, master);
  trireme::detail::WholeTensors tensors = whole.state_dict(*net_.module);
  for (auto& tensor : tensors)
    if (const auto master = masters.find(tensor.name); master != masters.end()) tensor = master->second;
  return tensors;
}

void Learner::load_weights(const io::TensorMap& tensors, const io::LoadOptions& options) {
  const torch::NoGradGuard no_grad;
  io::LoadReport report;
  make_step();
  ranks().together([&] { report = trireme::detail::load_weights(*net_.module, tensors, options); });
  if (!step_ || step_->masters() == nullptr) return;  // masters() has let all of them follow the weights
  io::TensorMap masters = trained_parameters();
  for (const auto& item : trireme::detail::local_parts(masters, taken_over(tensors, masters, report)))
    masters[item.key()].copy_(item.value());
}

}  // namespace trireme::train
