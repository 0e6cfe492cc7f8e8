#include "trireme/trainer/ranks.h"

#include <torch/torch.h>

#include <cstring>
#include <exception>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"

namespace trireme::trainer {
namespace {

torch::Device device_of(const config::Global& global, const World& world) {
  if (global.device == config::Device::cpu) return torch::kCPU;
  if (!world.device().is_cuda())
    global.node.at("device").fail(
        "rank {} has no GPU that could be used (`trireme doctor` tells why); to train on the CPU: -o Global.device=cpu",
        world.rank());
  return world.device();
}

void copy_from_main(const torch::nn::Module& module, const Group& group) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : module.parameters()) broadcast(tensor, 0, group);
  for (const torch::Tensor& tensor : module.buffers()) broadcast(tensor, 0, group);
}

}  // namespace

Ranks::Ranks(const config::Global& global) : world_(init_parallel_env()), device_(device_of(global, world_)) {}

void Ranks::share(const std::shared_ptr<torch::nn::Module>& trained,
                  const std::vector<std::shared_ptr<torch::nn::Module>>& frozen) {
  if (world_.size() > 1)
    for (const auto& module : frozen) copy_from_main(*module, world_);
  sync_ = std::make_shared<GradientSync>(trained, world_, DataParallelOptions{});
}

std::optional<NoSync> Ranks::gradients(bool averaged) const {
  if (averaged || !sync_) return std::nullopt;
  return NoSync(sync_);
}

std::vector<std::vector<double>> Ranks::numbers_of_all(const std::vector<double>& mine) const {
  if (world_.size() == 1) return {mine};
  std::vector<std::vector<double>> all;
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  for (const std::string& one : all_gather_object(bytes, world_)) {
    all.emplace_back(one.size() / sizeof(double));
    std::memcpy(all.back().data(), one.data(), one.size());
  }
  return all;
}

void Ranks::largest(const torch::Tensor& tensor) const {
  if (world_.size() > 1) all_reduce(tensor, ReduceOp::max, world_);
}

std::string Ranks::from_main(const std::string& text) const {
  return world_.size() > 1 ? broadcast_object(text, 0, world_) : text;
}

void Ranks::on_main(const std::function<void()>& work) const {
  std::exception_ptr failure;
  std::string reason;
  if (is_main()) {
    try {
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      reason = fmt::format("rank 0: {}", error.what());
    }
  }
  reason = from_main(reason);
  if (failure) std::rethrow_exception(failure);
  if (!reason.empty()) throw PeerError("{}", reason);
}

}  // namespace trireme::trainer
