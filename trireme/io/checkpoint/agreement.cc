#include "trireme/io/checkpoint/agreement.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/comm/collectives.h"
#include "trireme/parallel/together.h"

namespace trireme::detail {
namespace {

using nlohmann::json;

// "model": [["fc.weight", 6, [10, 3]], …]
json layout_of(const io::TensorMap& tensors) {
  json layout = json::array();
  for (const auto& item : tensors)
    layout.push_back({item.key(), static_cast<int>(item.value().scalar_type()), item.value().sizes().vec()});
  return layout;
}

io::TensorMap without_values(const json& layout) {
  io::TensorMap tensors;
  for (const json& one : layout) {
    const auto type = static_cast<torch::ScalarType>(one[1].get<int>());
    tensors.insert(one[0].get<std::string>(),
                   torch::empty(one[2].get<std::vector<int64_t>>(), torch::TensorOptions(type).device(torch::kMeta)));
  }
  return tensors;
}

std::string header_of(const io::Snapshot& snapshot) {
  json groups = json::object();
  for (const auto& [name, tensors] : snapshot.tensors) groups[name] = layout_of(tensors);
  return json{{"manifest", io::to_json(snapshot.manifest)}, {"groups", groups}}.dump();
}

io::Snapshot from_header(const std::string& text) {
  const json header = json::parse(text);
  io::Snapshot snapshot{.manifest = io::parse_manifest(header.at("manifest").get<std::string>(), "rank 0's manifest")};
  for (const auto& [name, layout] : header.at("groups").items()) snapshot.tensors.emplace(name, without_values(layout));
  return snapshot;
}

}  // namespace

std::optional<io::Snapshot> share_layout(const std::optional<io::Snapshot>& snapshot, const Group& group) {
  const std::string mine = snapshot ? header_of(*snapshot) : "";
  const std::string header = is_alone(group) ? mine : broadcast_object(mine, 0, group);
  return header.empty() ? std::nullopt : std::optional(from_header(header));
}

void share_tensors(
    std::optional<io::Snapshot>& snapshot, const io::Snapshot& layout, const Group& group,
    const std::function<void(const std::string& file, const std::string& name, const torch::Tensor& tensor)>& use) {
  for (const auto& [file, tensors] : layout.tensors)
    for (const auto& item : tensors) {
      const torch::Tensor tensor = snapshot ? std::exchange(snapshot->tensors.at(file)[item.key()], {})
                                            : torch::empty_like(item.value(), torch::kCPU);
      if (!is_alone(group)) broadcast(tensor, 0, group);
      use(file, item.key(), tensor);
    }
}

std::vector<std::string> gather(const std::string& mine, const Group& group) {
  return is_alone(group) ? std::vector<std::string>{mine} : gather_object(mine, 0, group);
}

std::string scatter(const std::vector<std::string>& texts, const Group& group) {
  return is_alone(group) ? texts.at(0) : scatter_object(texts, 0, group);
}

}  // namespace trireme::detail
