#include "trireme/train/model_files.h"

#include <torch/torch.h>

#include <cstring>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/deploy/export/export.h"
#include "trireme/io/optimizer_state.h"
#include "trireme/io/safetensors.h"
#include "trireme/train/evaluation.h"

namespace trireme::train {
namespace {

constexpr const char* kScaler = "scaler";  // the text of its state, as bytes

std::filesystem::path weights_file(const std::filesystem::path& path) {
  return path.string() + ".safetensors";
}

std::filesystem::path optimizer_file(const std::filesystem::path& path) {
  return path.string() + ".optimizer.safetensors";
}

std::filesystem::path averages_file(const std::filesystem::path& path) {
  return path.string() + ".ema.safetensors";
}

torch::Tensor bytes_of(const std::string& text) {
  torch::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, torch::kUInt8);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const torch::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

void write_optimizer(Learner& learner, const std::filesystem::path& path) {
  Step& step = learner.step();
  io::TensorMap tensors = io::optimizer_state(step.optimizer(), learner.trained_parameters());
  if (step.scaler().enabled()) tensors.insert(kScaler, bytes_of(step.scaler().state_text()));
  io::save_safetensors(optimizer_file(path), tensors);
}

void write_averages(const optim::Ema& ema, const std::filesystem::path& path) {
  io::TensorMap tensors;
  for (const auto& [name, tensor] : ema.state()) tensors.insert(name, tensor);
  io::save_safetensors(averages_file(path), tensors);
}

/// Without a file the average starts again from the loaded weights.
void read_averages(optim::Ema& ema, const torch::nn::Module& module, const std::filesystem::path& path) {
  const bool saved = std::filesystem::exists(averages_file(path));
  optim::Ema::NamedTensors named;
  for (const auto& item : saved ? io::load_safetensors(averages_file(path)) : io::state_dict(module))
    named.emplace_back(item.key(), item.value());
  ema.load_state(named);
  if (!saved)
    log_warning("[train] {} does not exist; the average starts from the loaded weights", averages_file(path).string());
}

void read_optimizer(Learner& learner, const std::filesystem::path& path) {
  io::TensorMap tensors = io::load_safetensors(optimizer_file(path));
  Step& step = learner.step();
  if (const torch::Tensor* state = tensors.find(kScaler)) {
    if (step.scaler().enabled()) step.scaler().load_state(text_of(*state));
    tensors.erase(kScaler);
  }
  io::load_optimizer_state(step.optimizer(), learner.trained_parameters(), tensors);
}

}  // namespace

void write_model(Learner& learner, const std::filesystem::path& path, const SaveOptions& options) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  // The optimizer first: whoever finds the weights finds the rest too.
  if (options.training && learner.has_optimizer()) write_optimizer(learner, path);
  if (options.training && learner.has_optimizer() && learner.step().ema()) write_averages(*learner.step().ema(), path);
  io::save_safetensors(weights_file(path), learner.weights());
}

void write_for_inference(const Network& net, const std::filesystem::path& path, bundle::Description description) {
  if (net.inputs.least != 1)
    throw UsageError("Model::save: the network takes {} inputs; only networks of one input and one output are exported",
                     net.inputs.least);
  for (const torch::Tensor& parameter : net.module->parameters())
    if (parameter.scalar_type() != torch::kFloat)
      throw UsageError(
          "Model::save: the weights are {}, and a net for inference is exported from float32; after training with "
          "level O2 call prepare() without it, which makes them float32 again",
          c10::toString(parameter.scalar_type()));
  if (description.model_name.empty()) description.model_name = net.module->name();
  const auto forward = [&net](const torch::Tensor& x) {
    const Tensors outputs = net.forward({x});
    require_one_output(outputs);
    return outputs[0];
  };
  deploy::export_model({net.module, forward}, std::move(description), path);
}

void read_model(Learner& learner, const std::filesystem::path& path, const LoadOptions& options) {
  const std::filesystem::path weights = weights_file(path);
  learner.load_weights(
      io::load_safetensors(weights),
      {.strict = !options.skip_mismatch, .skip_mismatch = options.skip_mismatch, .from = weights.string()});
  if (!learner.has_optimizer()) {
    if (!options.reset_optimizer && std::filesystem::exists(optimizer_file(path)))
      learner.note_unread_optimizer(optimizer_file(path));
    return;
  }
  if (optim::Ema* ema = learner.step().ema()) read_averages(*ema, *learner.net().module, path);
  if (options.reset_optimizer) return;
  if (std::filesystem::exists(optimizer_file(path)))
    read_optimizer(learner, path);
  else
    log_warning("[train] {} does not exist; the optimizer starts without a saved state", optimizer_file(path).string());
}

}  // namespace trireme::train
