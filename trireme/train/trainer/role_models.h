// The network that is trained: one model, or a student and its teachers side by side (DistillationModel).
//
//   RoleModels net({{"Teacher", teacher, true}, {"Student", student}}, "Student");
//   Outputs outputs = net.forward(images);
//   outputs.of("Teacher");
//
// Frozen models run without gradient and in evaluation mode, so that nothing of them ever changes, and take no part in
// what trained() gives to optimizer, exchange of gradients and checkpoints. Models lie in memory channels last
// (unless TRIREME_CHANNELS_LAST=0).
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/models/classifier.h"

namespace trireme::trainer {

/// Scores by model. A small value.
class Outputs {
 public:
  explicit Outputs(std::string main) : main_(std::move(main)) {}
  void add(std::string role, torch::Tensor scores) { all_.emplace_back(std::move(role), std::move(scores)); }

  const torch::Tensor& of(const std::string& role) const;
  /// Of the model that is evaluated.
  const torch::Tensor& main() const { return of(main_); }
  /// Of the first `rows` samples.
  Outputs first(int64_t rows) const;

 private:
  std::string main_;
  std::vector<std::pair<std::string, torch::Tensor>> all_;
};

class RoleModels {
 public:
  struct Part {
    std::string role;  ///< "" when it is the only one
    models::ClassifierPtr model;
    bool frozen = false;
  };
  /// `main` is the role of the model that is evaluated. UsageError when all are frozen.
  RoleModels(std::vector<Part> parts, std::string main);

  /// UsageError when a model cannot take such images, or the device has too little memory for them.
  Outputs forward(const torch::Tensor& images) const;
  /// Of the main model alone.
  Outputs forward_main(const torch::Tensor& images) const;

  void set_training(bool training) const;
  void to(const torch::Device& device) const;

  const models::ClassifierPtr& main() const { return main_part().model; }
  /// The one model that is trained, with its own names; or several, with their roles before the names.
  const std::shared_ptr<torch::nn::Module>& trained() const { return trained_; }
  std::vector<std::shared_ptr<torch::nn::Module>> frozen() const;

 private:
  const Part& main_part() const;
  torch::Tensor run(const Part& part, const torch::Tensor& images) const;

  std::vector<Part> parts_;
  std::string main_;
  std::shared_ptr<torch::nn::Module> trained_;
};

}  // namespace trireme::trainer
