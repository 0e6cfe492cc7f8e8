#include "trireme/train/model.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/evaluation.h"
#include "trireme/train/learner.h"
#include "trireme/train/model_files.h"
#include "trireme/train/step_parts.h"

namespace trireme {

using train::CallbackList;
using train::Learner;
using train::ModelBatch;
using train::Tensors;

namespace {

template <typename Options>
Run make_run(Model& model, Learner& learner, const Options& options) {
  Run run(model, learner.ranks().me());
  run.batch_size = options.batch_size;
  run.log_freq = options.log_freq;
  run.verbose = options.verbose;
  return run;
}

template <typename Options>
CallbackList make_callbacks(const Options& options) {
  CallbackList callbacks(options.callbacks);
  if (options.verbose > 0) callbacks.add_default<callback::ProgressBar>();
  return callbacks;
}

Results measured_alone(Learner& learner, const train::Scored& scored, const ModelBatch& batch) {
  train::Meter meter({"loss"}, learner.metrics());
  meter.add(learner.numbers(scored, batch, 0));
  return meter.measured(learner.ranks()).results;
}

}  // namespace

Model::Model(train::Network net, TensorNames names)
    : learner_(std::make_shared<Learner>(std::move(net), std::move(names))) {}

Model& Model::prepare(const PrepareOptions& options) {
  learner_->prepare(options);
  return *this;
}

Model& Model::prepare(train::OptimizerSource optimizer, Loss loss, train::Metrics metrics, const AmpOptions& amp) {
  return prepare(PrepareOptions{std::move(optimizer), std::move(loss), std::move(metrics), amp});
}

Results Model::evaluate(const train::Samples& samples, const EvaluateOptions& options) {
  Run run = make_run(*this, *learner_, options);
  return train::run_evaluation(*learner_, samples, make_callbacks(options), run,
                               {options.num_workers, options.num_iters});
}

torch::Tensor Model::predict(const train::Samples& samples, const PredictOptions& options) {
  Run run = make_run(*this, *learner_, options);
  return train::run_prediction(*learner_, samples, make_callbacks(options), run,
                               {.num_workers = options.num_workers, .one_output = true})[0];
}

Tensors Model::predict_outputs(const train::Samples& samples, const PredictOptions& options) {
  Run run = make_run(*this, *learner_, options);
  return train::run_prediction(*learner_, samples, make_callbacks(options), run, {.num_workers = options.num_workers});
}

Results Model::train_batch(const torch::Tensor& input, const torch::Tensor& label, const TrainBatchOptions& options) {
  return train_batch(Tensors{input}, Tensors{label}, options);
}

Results Model::train_batch(const Tensors& inputs, const Tensors& labels, const TrainBatchOptions& options) {
  learner_->require_training("train_batch");
  const ModelBatch batch{inputs, labels};
  return measured_alone(*learner_, learner_->train(batch, {.update = options.update}), batch);
}

Results Model::eval_batch(const torch::Tensor& input, const torch::Tensor& label) {
  return eval_batch(Tensors{input}, Tensors{label});
}

Results Model::eval_batch(const Tensors& inputs, const Tensors& labels) {
  const auto averaged = learner_->averaged_weights();
  const ModelBatch batch{inputs, labels};
  return measured_alone(*learner_, learner_->evaluate(batch), batch);
}

torch::Tensor Model::predict_batch(const torch::Tensor& input) {
  const Tensors outputs = predict_batch(Tensors{input});
  train::require_one_output(outputs);
  return outputs[0];
}

Tensors Model::predict_batch(const Tensors& inputs) {
  const auto averaged = learner_->averaged_weights();
  return learner_->predict(inputs);
}

void Model::save(const std::filesystem::path& path, const SaveOptions& options) {
  if (options.training && options.inference)
    throw UsageError(
        "Model::save: a net for inference cannot go on training; say {{.training = false, .inference = …}}");
  if (!options.inference) return train::write_model(*learner_, path, options);
  const auto weights = learner_->evaluation_weights();
  learner_->ranks().on_main([&] { train::write_for_inference(learner_->net(), path, *options.inference); });
}

void Model::load(const std::filesystem::path& path, const LoadOptions& options) {
  train::read_model(*learner_, path, options);
}

Summary Model::summary(const std::vector<int64_t>& input_size, torch::ScalarType dtype) const {
  return train::summarize(learner_->net(), {input_size}, dtype);
}

Summary Model::summary(const std::vector<std::vector<int64_t>>& input_sizes, torch::ScalarType dtype) const {
  return train::summarize(learner_->net(), input_sizes, dtype);
}

std::vector<torch::Tensor> Model::parameters() const {
  return train::stepped_parameters(*learner_->net().module);
}

double Model::learning_rate() const {
  return optim::get_lr(learner_->step().optimizer());
}

void Model::set_learning_rate(double rate) {
  optim::set_lr(learner_->step().optimizer(), rate);
}

}  // namespace trireme
