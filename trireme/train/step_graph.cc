#include "trireme/train/step_graph.h"

#include <torch/torch.h>

#include "trireme/core/log.h"
#include "trireme/train/operators_of.h"

namespace trireme::train {
namespace {

constexpr int kWatchedSteps = 3;

bool are_alike(const Tensors& a, const Tensors& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& one, const auto& other) {
           return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
                  one.device() == other.device() && one.requires_grad() == other.requires_grad();
         });
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

Tensors copies(const Tensors& tensors) {
  Tensors result;
  for (const torch::Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

}  // namespace

StepGraph::Result StepGraph::run(const Batch& batch, const Work& work) {
  if (state_ == State::refused) return work(batch);
  if (state_ == State::recorded && seen_ != look()) begin_again(batch);
  if (!has_shape_of(batch)) {
    if (state_ == State::recorded) return work(batch);
    begin_again(batch);
  }
  if (state_ == State::recorded) return replay(batch);
  return state_ == State::ready ? record(batch, work) : watch(batch, work);
}

void StepGraph::watch_forward(const std::function<void()>& forward) {
  if (state_ != State::watching) return forward();
  const uint64_t now = operators_of(forward);
  // The first step may prepare what the later ones have.
  if (steps_ > 1 && now != operators_)
    refuse("forward() calls other operators, or gives them other numbers, from step to step");
  operators_ = now;
}

StepGraph::Result StepGraph::watch(const Batch& batch, const Work& work) {
  Result result = work(batch);
  if (++steps_ >= kWatchedSteps && state_ == State::watching) state_ = State::ready;
  return result;
}

// Accumulators of gradients belong to the stream on which they were made: the recording needs its own.
StepGraph::Result StepGraph::record(const Batch& batch, const Work& work) {
  for (const torch::Tensor& parameter : module_->parameters())
    if (parameter.requires_grad()) torch::autograd::impl::set_grad_accumulator(parameter, {});
  recording_ = comm::make_gpu_recording(batch.inputs[0].device().index());
  Result result;
  if (!recording_->rehearse([&] { result = work(batch); })) {
    refuse("forward(), the loss or their gradients wait for the GPU, as item() does");
    return result;
  }
  // The rehearsal was this step; the recording is for the next. It must find what a step finds: no gradients.
  std::vector<torch::Tensor> gradients;
  for (torch::Tensor& parameter : module_->parameters()) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  try {
    batch_ = {copies(batch.inputs), copies(batch.labels)};
    recording_->record([&] { result_ = work(batch_); });
    keep_gradients();
    seen_ = look();
    state_ = State::recorded;
    log_info("train::Step: forward and backward run as a CUDA graph from here on");
  } catch (const c10::Error& error) {
    refuse(first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    refuse(first_line(error.what()));
  }
  size_t i = 0;
  for (torch::Tensor& parameter : module_->parameters()) parameter.mutable_grad() = gradients[i++];
  return result;
}

StepGraph::Result StepGraph::replay(const Batch& batch) {
  copy_in(batch);
  recording_->replay();
  for (auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
  return {result_.loss.clone(), copies(result_.outputs)};  // the next replay writes to the same memory
}

void StepGraph::keep_gradients() {
  gradients_.clear();
  for (const torch::Tensor& parameter : module_->parameters())
    if (parameter.grad().defined()) gradients_.emplace_back(parameter, parameter.grad());
}

void StepGraph::copy_in(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < batch.inputs.size(); ++i) batch_.inputs[i].copy_(batch.inputs[i]);
  for (size_t i = 0; i < batch.labels.size(); ++i) batch_.labels[i].copy_(batch.labels[i]);
}

bool StepGraph::has_shape_of(const Batch& batch) const {
  return are_alike(batch.inputs, batch_.inputs) && are_alike(batch.labels, batch_.labels);
}

StepGraph::Seen StepGraph::look() const {
  Seen seen;
  for (const torch::Tensor& parameter : module_->parameters()) {
    seen.tensors.push_back(parameter.const_data_ptr());
    seen.modes.push_back(parameter.requires_grad() ? 1 : 0);
  }
  for (const torch::Tensor& buffer : module_->buffers()) seen.tensors.push_back(buffer.const_data_ptr());
  for (const auto& layer : module_->modules()) seen.modes.push_back(layer->is_training() ? 1 : 0);
  return seen;
}

void StepGraph::begin_again(const Batch& batch) {
  state_ = State::watching;
  steps_ = 0;
  recording_.reset();
  gradients_.clear();
  result_ = {};
  batch_ = batch;
}

void StepGraph::refuse(const std::string& reason) {
  state_ = State::refused;
  recording_.reset();
  gradients_.clear();
  result_ = {};
  batch_ = {};
  log_warning("train::Step: no CUDA graph: {}; steps run one operator after the other", reason);
}

}  // namespace trireme::train
