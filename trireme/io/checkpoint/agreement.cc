#include "trireme/io/checkpoint/agreement.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "trireme/comm/collectives.h"
#include "trireme/parallel/together.h"

namespace trireme::detail {
namespace {

using nlohmann::json;

// "model": [["fc.weight", 6, [10, 3]], …]: what the other ranks must make room for.
json layout_of(const io::TensorMap& tensors) {
  json layout = json::array();
  for (const auto& item : tensors)
    layout.push_back({item.key(), static_cast<int>(item.value().scalar_type()), item.value().sizes().vec()});
  return layout;
}

io::TensorMap room_for(const json& layout) {
  io::TensorMap tensors;
  for (const json& one : layout)
    tensors.insert(one[0].get<std::string>(),
                   torch::empty(one[2].get<std::vector<int64_t>>(), static_cast<torch::ScalarType>(one[1].get<int>())));
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
  for (const auto& [name, layout] : header.at("groups").items()) snapshot.tensors.emplace(name, room_for(layout));
  return snapshot;
}

}  // namespace

std::optional<io::Snapshot> share(std::optional<io::Snapshot> snapshot, const Group& group) {
  if (is_alone(group)) return snapshot;
  const bool mine = group.rank() == 0;
  const std::string header = broadcast_object(mine && snapshot ? header_of(*snapshot) : "", 0, group);
  if (header.empty()) return std::nullopt;
  if (!mine) snapshot = from_header(header);
  for (auto& [name, tensors] : snapshot->tensors)
    for (auto& item : tensors) broadcast(item.value(), 0, group);
  return snapshot;
}

std::vector<std::string> gather(const std::string& mine, const Group& group) {
  return is_alone(group) ? std::vector<std::string>{mine} : gather_object(mine, 0, group);
}

std::string scatter(const std::vector<std::string>& texts, const Group& group) {
  return is_alone(group) ? texts.at(0) : scatter_object(texts, 0, group);
}

}  // namespace trireme::detail
