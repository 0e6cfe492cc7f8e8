#include "trireme/checkpoint/agreement.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"

namespace trireme::detail {
namespace {

using nlohmann::json;

// An exception as it travels. An empty text is none.
struct Failure {
  enum Kind { usage, system, peer } kind = peer;
  int number = 0;  // errno of a SystemError
  std::string text;
};

Failure describe(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return {Failure::usage, 0, error.what()};
  if (const auto* system = dynamic_cast<const SystemError*>(&error)) {
    std::string text = error.what();
    const std::string reason = ": " + errno_text(system->number());  // the exception made of it says it again
    if (text.ends_with(reason)) text.resize(text.size() - reason.size());
    return {Failure::system, system->number(), text};
  }
  return {Failure::peer, 0, error.what()};
}

std::string to_text(const Failure& failure) {
  return failure.text.empty() ? ""
                              : fmt::format("{} {} {}", static_cast<int>(failure.kind), failure.number, failure.text);
}

[[noreturn]] void rethrow(const std::string& text, int rank) {
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  const std::string message = fmt::format("rank {}: {}", rank, text.substr(second + 1));
  switch (text[0] - '0') {
    case Failure::usage:
      throw UsageError("{}", message);
    case Failure::system:
      throw SystemError(std::stoi(text.substr(first + 1)), "{}", message);
    default:
      throw PeerError("{}", message);
  }
}

bool is_alone(const Group& group) {
  return group.size() <= 1;
}

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

void together(const Group& group, const std::function<void()>& work) {
  if (is_alone(group)) return work();
  std::exception_ptr mine;
  Failure failure;
  try {
    work();
  } catch (const std::exception& error) {
    mine = std::current_exception();
    failure = describe(error);
  }
  const std::vector<std::string> all = all_gather_object(to_text(failure), group);
  if (mine) std::rethrow_exception(mine);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty()) rethrow(all[rank], static_cast<int>(rank));
}

void on_first(const Group& group, const std::function<void()>& work) {
  together(
      group, is_alone(group) || group.rank() == 0 ? work : [] {});
}

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
