#include "trireme/train/ranks.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/parallel/same_model.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/parallel/together.h"

namespace trireme::train {
namespace {

bool is_trainable(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const torch::Tensor& one) { return one.requires_grad(); });
}

void differ_by_rank(int rank) {
  if (rank != 0) torch::manual_seed(at::detail::getDefaultCPUGenerator().current_seed() + static_cast<uint64_t>(rank));
}

std::string bytes_of(const torch::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// "6 10 20": the type, and the shape of a row.
std::string row_text(const torch::Tensor& rows) {
  if (!rows.defined()) return "";
  return fmt::format("{} {}", static_cast<int>(rows.scalar_type()), fmt::join(rows.sizes().slice(1), " "));
}

torch::Tensor rows_from(const std::string& bytes, const std::string& row) {
  const std::vector<std::string> words = split(trim(row), ' ');
  std::vector<int64_t> sizes = {-1};
  for (size_t i = 1; i < words.size(); ++i) sizes.push_back(std::stoll(words[i]));
  const auto type = static_cast<torch::ScalarType>(std::stoi(words[0]));
  const auto count = static_cast<int64_t>(bytes.size() / c10::elementSize(type));
  torch::Tensor rows = torch::empty({count}, type);
  std::memcpy(rows.mutable_data_ptr(), bytes.data(), bytes.size());
  return rows.reshape(sizes);
}

}  // namespace

Ranks::Ranks(std::optional<c10::Device> device)
    : world_(init_parallel_env()), device_(device.value_or(world_.device())) {}

Ranks::Ranks(const std::shared_ptr<torch::nn::Module>& module, const std::optional<ShardedOptions>& shard) : Ranks() {
  module->to(device_);
  share(module, {}, shard);
  differ_by_rank(world_.rank());
}

void Ranks::share(const std::shared_ptr<torch::nn::Module>& trained,
                  const std::vector<std::shared_ptr<torch::nn::Module>>& frozen,
                  const std::optional<ShardedOptions>& shard) {
  parallel::require_same_settings("training", {shard ? trireme::detail::describe(*shard) : "shard = none"}, world_);
  for (const auto& module : frozen) broadcast_state(*module, 0, world_);
  if (!is_trainable(*trained))
    broadcast_state(*trained, 0, world_);
  else if (shard)
    sync_ = std::make_shared<ShardSync>(trained, world_, *shard);
  else
    sync_ = std::make_shared<GradientSync>(trained, world_, DataParallelOptions{});
}

std::unique_ptr<GatheredParameters> Ranks::whole_weights() const {
  const auto shards = std::dynamic_pointer_cast<ShardSync>(sync_);
  return shards ? std::make_unique<GatheredParameters>(shards) : nullptr;
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

void Ranks::require_equal_samples(const std::string& who, int64_t samples) const {
  const auto all = numbers_of_all({static_cast<double>(samples)});
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw UsageError(
          "{}: the dataset has {} samples on rank {} and {} on rank 0; every rank reads the whole dataset and takes "
          "its share. Is a file missing on one machine?",
          who, all[rank][0], rank, all[0][0]);
}

std::vector<torch::Tensor> Ranks::rows_of_all(const torch::Tensor& mine) const {
  const torch::Tensor rows = mine.defined() ? mine.cpu().contiguous() : mine;
  if (world_.size() == 1) return {rows};
  const std::vector<std::string> shapes = all_gather_object(row_text(rows), world_);
  const std::vector<std::string> bytes = all_gather_object(rows.defined() ? bytes_of(rows) : "", world_);
  std::vector<torch::Tensor> all;
  for (size_t rank = 0; rank < bytes.size(); ++rank)
    all.push_back(shapes[rank].empty() ? torch::Tensor() : rows_from(bytes[rank], shapes[rank]));
  return all;
}

std::string Ranks::from_main(const std::string& text) const {
  return world_.size() > 1 ? broadcast_object(text, 0, world_) : text;
}

void Ranks::on_main(const std::function<void()>& work) const {
  on_first(world_, work);
}

void Ranks::together(const std::function<void()>& work) const {
  trireme::together(world_, work);
}

}  // namespace trireme::train
