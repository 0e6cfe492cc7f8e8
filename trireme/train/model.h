// A net with its training, evaluation and prediction, in a few calls and on any number of processes.
//
//   Model model(models::lenet(10));
//   model.prepare({.optimizer = [](auto parameters) { return optim::Adam(parameters, {.lr = 1e-3}); },
//                  .loss = torch::nn::CrossEntropyLoss(),
//                  .metrics = {metric::Accuracy()}});
//   model.fit(data::FashionMnist(), {.eval = test, .batch_size = 64, .epochs = 5, .save_dir = "out"});
//   double accuracy = model.evaluate(test, {.batch_size = 64}).at("acc");
//
// Several inputs, labels and outputs: forward() takes and returns several tensors, the first tensors of a sample are
// its inputs and the others its labels (or name them), and the loss takes lists.
//
//   Model model(Siamese(128), {.inputs = {"left", "right"}, .labels = {"same", "distance"}});
//   model.prepare({.optimizer = …,
//                  .loss = [](const train::Tensors& outputs, const train::Tensors& labels) {
//                    return torch::binary_cross_entropy(outputs[0], labels[0]) + torch::mse_loss(outputs[1], labels[1]);
//                  },
//                  .metrics = {{metric::Auc(), {.output = 0, .label = 0}}}});
//
// What is fitted, evaluated or predicted is a dataset or a data::Loader (see samples.h). Samples that cannot be read
// are replaced in a fit, left out by evaluate() and rows of NaN in what predict() gives; too many of them are an error.
//
// The names and meanings are those of paddle.Model. Under `trireme launch` the same program trains on all ranks: at its
// first use the model calls init_parallel_env(), moves the net to this rank's device, gives every rank rank 0's weights
// and a share of each dataset, averages gradients, and tells results over all ranks, the same on each. Only rank 0
// prints and writes. Fitting with R ranks and batches of B equals one process with batches of R*B; so does a fit whose
// optimizer states, gradients or parameters are split over the ranks (PrepareOptions::shard).
//
// Requires: every rank makes the same calls in the same order; one thread at a time. A small value: copies mean the
// same model.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "trireme/train/callbacks.h"
#include "trireme/train/fit_options.h"
#include "trireme/train/metrics.h"
#include "trireme/train/network.h"
#include "trireme/train/prepare_options.h"
#include "trireme/train/progress.h"
#include "trireme/train/results.h"
#include "trireme/train/summary.h"
#include "trireme/train/tensor_names.h"

namespace trireme::train {
class Learner;
}

namespace trireme {

class Model {
 public:
  /// A std::shared_ptr of a module, or a holder as TORCH_MODULE makes them (network.h).
  explicit Model(train::Network net, TensorNames names = {});

  /// UsageError for an optimizer of other parameters than the net's, and for two metrics of the same name. May be
  /// called again, for another phase of training.
  Model& prepare(const PrepareOptions& options);
  Model& prepare(train::OptimizerSource optimizer, Loss loss = {}, train::Metrics metrics = {},
                 const AmpOptions& amp = {});

  /// Trains. Returns the last results: the training's, then the last evaluation's with "eval_" before their names.
  /// UsageError with epoch, step and rank when a loss is not a finite number; what was saved before stays. With a
  /// save_dir, Ctrl-C and SIGTERM end the process only after save_dir/interrupted is saved, at the next logged step.
  Results fit(const train::Samples& samples, const FitOptions& options = {});
  /// The average loss over all samples, and the metrics: the same bits on any number of ranks.
  Results evaluate(const train::Samples& samples, const EvaluateOptions& options = {});
  /// The outputs for all samples in the order of the dataset, stacked, on the CPU, on every rank. UsageError when the
  /// network has several outputs: predict_outputs() gives a tensor for each.
  torch::Tensor predict(const train::Samples& samples, const PredictOptions& options = {});
  train::Tensors predict_outputs(const train::Samples& samples, const PredictOptions& options = {});

  /// One step on a batch that the caller chose, its own on each rank; results over the batches of all ranks. Calls with
  /// update = false only add to the gradients; the next call with update = true averages them all by their samples.
  Results train_batch(const torch::Tensor& input, const torch::Tensor& label, const TrainBatchOptions& options = {});
  Results train_batch(const train::Tensors& inputs, const train::Tensors& labels,
                      const TrainBatchOptions& options = {});
  Results eval_batch(const torch::Tensor& input, const torch::Tensor& label);
  Results eval_batch(const train::Tensors& inputs, const train::Tensors& labels);
  /// This rank's outputs, on its device.
  torch::Tensor predict_batch(const torch::Tensor& input);
  train::Tensors predict_batch(const train::Tensors& inputs);

  /// Writes PATH.safetensors (the weights) and, for going on with the training, PATH.optimizer.safetensors; or, with
  /// options.inference, the folder PATH for inference (deploy/export.h). Rank 0 writes, each file as a whole or not at
  /// all; when it fails, every rank throws.
  void save(const std::filesystem::path& path, const SaveOptions& options = {});
  /// Every rank reads, and when one fails, all throw. UsageError names the tensors that are missing or do not fit. How
  /// many ranks saved the file, and whether they trained with `shard`, does not matter.
  void load(const std::filesystem::path& path, const LoadOptions& options = {});

  /// The table of the net's layers for inputs of these shapes (the batch first). Prints nothing.
  Summary summary(const std::vector<int64_t>& input_size, torch::ScalarType dtype = torch::kFloat) const;
  Summary summary(const std::vector<std::vector<int64_t>>& input_sizes, torch::ScalarType dtype = torch::kFloat) const;

  /// The net's parameters, on whatever device they are; with PrepareOptions::shard, from the first use on, this rank's
  /// pieces of them.
  std::vector<torch::Tensor> parameters() const;
  /// Of the first group of parameters; set for all. UsageError without an optimizer.
  double learning_rate() const;
  void set_learning_rate(double rate);

 private:
  std::shared_ptr<train::Learner> learner_;
};

}  // namespace trireme
