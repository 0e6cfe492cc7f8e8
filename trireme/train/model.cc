#include "trireme/train/model.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/evaluation.h"
#include "trireme/train/learner.h"
#include "trireme/train/model_files.h"

namespace trireme {
namespace {

template <typename Options>
Run make_run(Model& model, Learner& learner, const Options& options) {
  Run run{.model = model, .me = learner.team().me()};
  run.batch_size = options.batch_size;
  run.log_freq = options.log_freq;
  run.verbose = options.verbose;
  return run;
}

template <typename Options>
Callbacks make_callbacks(const Options& options) {
  Callbacks callbacks(options.callbacks);
  if (options.verbose > 0) callbacks.add_default<callback::ProgressBar>();
  return callbacks;
}

Results measured_alone(Learner& learner, const Scored& scored, const torch::Tensor& labels) {
  Meter meter({"loss"}, learner.metrics());
  meter.add(learner.numbers(scored, labels, 0));
  return meter.measured(learner.team()).results;
}

}  // namespace

Model::Model(Network net) : learner_(std::make_shared<Learner>(std::move(net))) {}

Model& Model::prepare(const PrepareOptions& options) {
  learner_->prepare(options);
  return *this;
}

Model& Model::prepare(OptimizerSource optimizer, Loss loss, Metrics metrics, const AmpOptions& amp) {
  return prepare(PrepareOptions{std::move(optimizer), std::move(loss), std::move(metrics), amp});
}

Results Model::evaluate(const Samples& samples, const EvaluateOptions& options) {
  Run run = make_run(*this, *learner_, options);
  return run_evaluation(*learner_, samples, make_callbacks(options), run, {options.num_workers, options.num_iters});
}

torch::Tensor Model::predict(const Samples& samples, const PredictOptions& options) {
  Run run = make_run(*this, *learner_, options);
  return run_prediction(*learner_, samples, make_callbacks(options), run, {options.num_workers, {}});
}

Results Model::train_batch(const torch::Tensor& inputs, const torch::Tensor& labels, const TrainBatchOptions& options) {
  learner_->require_training("train_batch");
  const Scored scored = learner_->train(inputs, labels, {.update = options.update});
  return measured_alone(*learner_, scored, labels);
}

Results Model::eval_batch(const torch::Tensor& inputs, const torch::Tensor& labels) {
  const auto averaged = learner_->averaged_weights();
  return measured_alone(*learner_, learner_->evaluate(inputs, labels), labels);
}

torch::Tensor Model::predict_batch(const torch::Tensor& inputs) {
  const auto averaged = learner_->averaged_weights();
  return learner_->predict(inputs);
}

void Model::save(const std::filesystem::path& path, const SaveOptions& options) {
  if (options.training && options.inference)
    throw UsageError(
        "Model::save: a net for inference cannot go on training; say {{.training = false, .inference = …}}");
  Team& team = learner_->team();
  if (learner_->has_optimizer()) learner_->step();  // made by every rank, not only by the one that writes
  if (options.inference) {
    const auto averaged = learner_->averaged_weights();
    return team.on_main([&] { write_for_inference(learner_->net(), path, *options.inference); });
  }
  team.on_main([&] { write_model(*learner_, path, options); });
}

void Model::load(const std::filesystem::path& path, const LoadOptions& options) {
  learner_->team();
  read_model(*learner_, path, options);
}

Summary Model::summary(const std::vector<int64_t>& input_size, torch::ScalarType dtype) const {
  return summarize(*learner_->net().module, learner_->net().forward, input_size, dtype);
}

std::vector<torch::Tensor> Model::parameters() const {
  return learner_->net().module->parameters();
}

double Model::learning_rate() const {
  return optim::get_lr(learner_->step().optimizer());
}

void Model::set_learning_rate(double rate) {
  optim::set_lr(learner_->step().optimizer(), rate);
}

}  // namespace trireme
