#include "trireme/parallel/pipeline/pipeline_module.h"

#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::parallel {
namespace {

using torch::Tensor;

// A tensor as it is announced: name, type, sizes.
std::string announced(const std::string& name, const Tensor& tensor) {
  std::vector<std::string> fields{name, std::to_string(static_cast<int>(tensor.scalar_type()))};
  for (const int64_t size : tensor.sizes()) fields.push_back(std::to_string(size));
  return join(fields, "\t");
}

Tensor buffer_for(const std::vector<std::string>& fields) {
  std::vector<int64_t> sizes;
  for (size_t i = 2; i < fields.size(); ++i) sizes.push_back(std::stoll(fields[i]));
  return torch::empty(sizes, static_cast<c10::ScalarType>(std::stoi(fields[1])));
}

const torch::nn::Module& with_layers(torch::nn::Module& whole,
                                     const std::vector<std::shared_ptr<StageModule>>& stages) {
  for (const auto& stage : stages)
    for (const auto& layer : stage->named_children()) whole.register_module(layer.key(), layer.value());
  return whole;
}

}  // namespace

PipelineModule::PipelineModule(const StagePlan& plan, const std::vector<std::shared_ptr<StageModule>>& stages,
                               const Group& group)
    : torch::nn::Module("Pipeline"), plan_(plan), group_(group), ties_(plan, with_layers(*this, stages), group) {
  std::set<const void*> seen;
  for (const auto& item : named_parameters())
    if (!ties_.is_copy(item.value()) && seen.insert(item.value().unsafeGetTensorImpl()).second)
      optimized_.insert(ties_.saved_name(item.key()), item.value());
  if (optimized_.is_empty())
    optimized_.insert(fmt::format("no parameters on rank {}", group.rank()), torch::empty({0}).requires_grad_());
}

// Optimizers save "adam/state/fc.weight/exp_avg", and so of several models "adam/state/model/fc.weight/exp_avg".
int PipelineModule::place_of(const std::string& name) const {
  return plan_.find(name.substr(0, name.find('.')));
}

bool PipelineModule::is_in_other_layer(const std::string& name) const {
  const int layer = place_of(name);
  return layer >= 0 && plan_.rank_of(layer) != group_.rank();
}

bool PipelineModule::is_elsewhere(const std::string& name) const {
  if (saved_name(name) != name) return true;
  return !ties_.is_here(name) && is_in_other_layer(name);
}

PipelineModule::NamedTensors PipelineModule::gathered(const NamedTensors& all_here) const {
  const torch::NoGradGuard no_grad;
  NamedTensors mine;
  for (const auto& item : all_here)
    if (!is_in_other_layer(item.key())) mine.insert(item.key(), item.value());  // its owner gives a tied one
  std::vector<std::string> lines;
  if (group_.rank() != 0)
    for (const auto& item : mine) lines.push_back(announced(item.key(), item.value()));
  const std::vector<std::string> texts = gather_object(join(lines, "\n"), 0, group_);
  if (group_.rank() != 0) {
    for (const auto& item : mine) send(item.value().detach().cpu().contiguous(), 0, group_);
    return mine;
  }
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& item : mine) all.emplace_back(item.key(), item.value());
  for (int rank = 1; rank < group_.size(); ++rank)
    for (const std::string& line : split(texts[static_cast<size_t>(rank)], '\n')) {
      if (line.empty()) continue;
      const std::vector<std::string> fields = split(line, '\t');
      all.emplace_back(fields.at(0), buffer_for(fields));
      recv(all.back().second, rank, group_);
    }
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return place_of(a.first) < place_of(b.first); });
  NamedTensors result;
  for (const auto& [name, tensor] : all)
    if (!result.contains(name)) result.insert(name, tensor);
  return result;
}

}  // namespace trireme::parallel
