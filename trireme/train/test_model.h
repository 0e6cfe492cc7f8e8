// A small net, points that it can learn, and a diary of callbacks, for tests.
#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "trireme/data/tensor_dataset.h"
#include "trireme/train/model.h"

namespace trireme {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::relu(norm(first(x)))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 3));
};
TORCH_MODULE(Net);

inline Net seeded_net() {
  torch::manual_seed(7);
  return Net();
}

// Three classes that a line each keeps apart.
inline data::TensorDataset points(int64_t count = 60) {
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({count, 4});
  return {x, x.narrow(1, 0, 3).argmax(1)};
}

inline auto sgd(double rate) {
  return [rate](auto parameters) { return torch::optim::SGD(parameters, rate); };
}

inline Model prepared(const Net& net, double rate = 0.1) {
  Model model(net);
  model.prepare({.optimizer = sgd(rate), .loss = torch::nn::CrossEntropyLoss(), .metrics = {metric::Accuracy()}});
  return model;
}

inline torch::Tensor flat(const Model& model) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& parameter : model.parameters()) parts.push_back(parameter.detach().reshape({-1}));
  return torch::cat(parts);
}

// Writes down which hooks were called.
class Diary : public Callback {
 public:
  void on_train_begin(Run&) override { add("train{"); }
  void on_train_end(Run&) override { add("}"); }
  void on_epoch_begin(Run& run) override { add(fmt::format("epoch{}{{", run.epoch)); }
  void on_epoch_end(Run&) override { add("}"); }
  void on_train_batch_begin(Run& run) override { add(fmt::format("{}(", run.step)); }
  void on_train_batch_end(Run& run) override { add(run.logged ? "*)" : ")"); }
  void on_eval_begin(Run&) override { add("eval{"); }
  void on_eval_end(Run& run) override { add(run.logs.contains("loss") ? "loss}" : "}"); }
  void on_eval_batch_begin(Run& run) override { add(fmt::format("{}(", run.step)); }
  void on_eval_batch_end(Run&) override { add(")"); }
  void on_predict_begin(Run&) override { add("predict{"); }
  void on_predict_end(Run&) override { add("}"); }
  void on_predict_batch_begin(Run& run) override { add(fmt::format("{}(", run.step)); }
  void on_predict_batch_end(Run&) override { add(")"); }

  std::string text;

 private:
  void add(const std::string& word) { text += word; }
};

}  // namespace trireme
