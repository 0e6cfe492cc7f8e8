#include "trireme/train/model_files.h"

#include <torch/torch.h>

#include <cstring>
#include <exception>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/deploy/export/export.h"
#include "trireme/io/optimizer_state.h"
#include "trireme/io/safetensors.h"
#include "trireme/io/slow_save.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/train/channels_last.h"
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

using Whole = trireme::detail::WholeState;

using trireme::detail::WholeTensors;

WholeTensors optimizer_tensors(Learner& learner, const Whole& whole) {
  Step& step = learner.step();
  WholeTensors tensors = whole.optimizer_state(step.optimizer(), learner.trained_parameters());
  if (!step.scaler().enabled()) return tensors;
  const torch::Tensor state = bytes_of(step.scaler().state_text());
  tensors.push_back({{kScaler, state.scalar_type(), state.sizes().vec()}, [state] { return state; }});
  return tensors;
}

/// Every rank brings the tensors together, one at a time, and rank 0 writes them. What fails there is thrown by all.
void write_file(const Ranks& ranks, const std::filesystem::path& path, const WholeTensors& tensors) {
  const std::vector<io::TensorLayout> layouts = trireme::detail::layouts_of(tensors);
  std::optional<io::SlowSave> note;
  std::optional<io::TensorFile> file;
  ranks.on_main([&] {
    note.emplace(path.string());
    for (const io::TensorLayout& one : layouts) note->expect(one.bytes());
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
    file.emplace(path, layouts);
  });
  std::exception_ptr failed;
  for (const size_t i : io::writing_order(layouts)) {
    const torch::Tensor whole = tensors[i].make();
    if (!file || failed) continue;
    try {
      file->write(whole);
      note->wrote(whole.nbytes());
    } catch (...) {
      failed = std::current_exception();  // the others count on this rank for the next tensor
    }
  }
  ranks.on_main([&] {
    if (failed) std::rethrow_exception(failed);
    file->commit();
    note->done();
  });
}

/// The averages of this rank by name.
io::TensorMap averages_of(const optim::Ema& ema) {
  io::TensorMap tensors;
  for (const auto& [name, tensor] : ema.state()) tensors.insert(name, tensor);
  return tensors;
}

/// What the averages would be of, if they began now.
io::TensorMap weights_here(const torch::nn::Module& module) {
  io::TensorMap tensors = io::state_dict(module);
  for (auto& item : tensors) item.value() = optim::piece_of(item.value());
  return tensors;
}

/// Without a file the average starts again from the loaded weights.
void read_averages(optim::Ema& ema, const torch::nn::Module& module, const std::filesystem::path& path) {
  const bool saved = std::filesystem::exists(averages_file(path));
  optim::Ema::NamedTensors named;
  for (const auto& item :
       saved ? trireme::detail::local_parts(averages_of(ema), io::load_safetensors(averages_file(path)))
             : weights_here(module))
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
  const io::TensorMap parameters = learner.trained_parameters();
  io::load_optimizer_state(step.optimizer(), parameters, trireme::detail::local_optimizer_state(parameters, tensors));
}

}  // namespace

void write_model(Learner& learner, const std::filesystem::path& path, const SaveOptions& options) {
  const Whole whole = learner.whole_state();
  const Ranks& ranks = learner.ranks();
  // The optimizer first: whoever finds the weights finds the rest too.
  const bool trains = options.training && learner.has_optimizer();
  if (trains) write_file(ranks, optimizer_file(path), optimizer_tensors(learner, whole));
  if (trains && learner.step().ema()) write_file(ranks, averages_file(path), whole.averages());
  write_file(ranks, weights_file(path), learner.weights(whole));
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
  const UsualOrder order(*net.module);
  const auto forward = [&net](const torch::Tensor& x) {
    const Tensors outputs = net.forward({x});
    require_one_output(outputs);
    return outputs[0];
  };
  deploy::export_model({net.module, forward}, std::move(description), path, {.no_engine = "Model::save has none"});
}

void read_model(Learner& learner, const std::filesystem::path& path, const LoadOptions& options) {
  const std::filesystem::path weights = weights_file(path);
  io::TensorMap tensors;
  learner.ranks().together([&] { tensors = io::load_safetensors(weights); });
  learner.load_weights(
      tensors, {.strict = !options.skip_mismatch, .skip_mismatch = options.skip_mismatch, .from = weights.string()});
  if (!learner.has_optimizer()) {
    if (!options.reset_optimizer && std::filesystem::exists(optimizer_file(path)))
      learner.note_unread_optimizer(optimizer_file(path));
    return;
  }
  Step& step = learner.step();
  learner.ranks().together([&] {
    if (optim::Ema* ema = step.ema()) read_averages(*ema, *learner.net().module, path);
    if (options.reset_optimizer) return;
    if (std::filesystem::exists(optimizer_file(path)))
      read_optimizer(learner, path);
    else
      log_warning("[train] {} does not exist; the optimizer starts without a saved state",
                  optimizer_file(path).string());
  });
}

}  // namespace trireme::train
