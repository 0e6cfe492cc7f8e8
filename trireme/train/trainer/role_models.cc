#include "trireme/train/trainer/role_models.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/nn/channels_last.h"
#include "trireme/train/channels_last.h"
#include "trireme/train/trainer/memory.h"

namespace trireme::trainer {
namespace {

torch::Tensor laid_out(const torch::Tensor& images) {
  return train::may_use_channels_last() ? train::to_channels_last(images) : images;
}

std::shared_ptr<torch::nn::Module> module_of(const std::vector<RoleModels::Part>& parts) {
  std::vector<RoleModels::Part> trained;
  for (const RoleModels::Part& part : parts)
    if (!part.frozen) trained.push_back(part);
  if (trained.empty()) throw UsageError("Arch: all models are frozen (freeze_params_list); there is nothing to train");
  if (trained.size() == 1) return trained[0].model;
  auto all = std::make_shared<torch::nn::Module>();
  for (const RoleModels::Part& part : trained) all->register_module(part.role, part.model);
  return all;
}

void freeze(const RoleModels::Part& part) {
  for (torch::Tensor& parameter : part.model->parameters()) parameter.set_requires_grad(false);
}

[[noreturn]] void refuse(const RoleModels::Part& part, const torch::Tensor& images, const c10::Error& error) {
  const std::string shape = fmt::format("{}", fmt::join(images.sizes(), " x "));
  if (out_of_memory(error))
    throw UsageError("a batch of {} needs more memory than {} has; make DataLoader.{}.sampler.batch_size smaller: {}",
                     shape, c10::str(images.device()), part.model->is_training() ? "Train" : "Eval",
                     error.what_without_backtrace());
  throw UsageError("Arch{}: the network cannot work on images of {} (see Global.image_shape and transform_ops): {}",
                   part.role.empty() ? "" : " " + part.role, shape, error.what_without_backtrace());
}

}  // namespace

const torch::Tensor& Outputs::of(const std::string& role) const {
  for (const auto& [name, scores] : all_)
    if (name == role) return scores;
  throw UsageError("there is no output of a model '{}'", role);
}

Outputs Outputs::first(int64_t rows) const {
  Outputs some(main_);
  for (const auto& [role, scores] : all_) some.add(role, scores.narrow(0, 0, rows));
  return some;
}

RoleModels::RoleModels(std::vector<Part> parts, std::string main)
    : parts_(std::move(parts)), main_(std::move(main)), trained_(module_of(parts_)) {
  for (const Part& part : parts_)
    if (part.frozen) freeze(part);
}

torch::Tensor RoleModels::run(const Part& part, const torch::Tensor& images) const {
  const torch::AutoGradMode gradients(!part.frozen && torch::GradMode::is_enabled());
  try {
    return part.model->forward(images);
  } catch (const c10::Error& error) {
    refuse(part, images, error);
  }
}

Outputs RoleModels::forward(const torch::Tensor& images) const {
  const torch::Tensor input = laid_out(images);
  Outputs outputs(main_);
  for (const Part& part : parts_) outputs.add(part.role, run(part, input));
  return outputs;
}

Outputs RoleModels::forward_main(const torch::Tensor& images) const {
  Outputs outputs(main_);
  outputs.add(main_, run(main_part(), laid_out(images)));
  return outputs;
}

void RoleModels::set_training(bool training) const {
  for (const Part& part : parts_) part.model->train(training && !part.frozen);
}

void RoleModels::to(const torch::Device& device) const {
  for (const Part& part : parts_) {
    part.model->to(device);
    if (train::may_use_channels_last()) nn::to_channels_last(*part.model);
  }
}

const RoleModels::Part& RoleModels::main_part() const {
  for (const Part& part : parts_)
    if (part.role == main_) return part;
  throw UsageError("there is no model '{}'", main_);
}

std::vector<std::shared_ptr<torch::nn::Module>> RoleModels::frozen() const {
  std::vector<std::shared_ptr<torch::nn::Module>> all;
  for (const Part& part : parts_)
    if (part.frozen) all.push_back(part.model);
  return all;
}

}  // namespace trireme::trainer
