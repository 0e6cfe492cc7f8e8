#include "trireme/data/order/sampler_state.h"

#include <fmt/core.h>

#include <limits>

#include "trireme/core/state_text.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

constexpr std::string_view kForm = "sampler 1 order=… shuffle=… seed=… samples=… epoch=… stages=RANKS:CONSUMED,…";
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxRanks = 1 << 20;  // a damaged number must not ask for terabytes of padding
constexpr size_t kMaxStages = 1000;

std::string stages_text(const std::vector<Stage>& stages) {
  std::vector<std::string> parts;
  for (const Stage& stage : stages) parts.push_back(fmt::format("{}:{}", stage.ranks, stage.consumed));
  return parts.empty() ? "none" : join(parts, ",");
}

Order read_order(StateReader& reader) {
  const std::string_view name = reader.word("order");
  for (const Order order : {Order::paddle, Order::torch})
    if (name == to_string(order)) return order;
  reader.refuse();
}

Stage read_stage(const StateReader& reader, std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) reader.refuse();
  return {.ranks = reader.whole_of(text.substr(0, colon), 1, kMaxRanks),
          .consumed = reader.whole_of(text.substr(colon + 1), 0, kMax)};
}

std::vector<Stage> read_stages(StateReader& reader) {
  const std::string_view list = reader.word("stages");
  if (list == "none") return {};
  const auto parts = split(list, ',');
  if (parts.empty() || parts.size() > kMaxStages) reader.refuse();
  std::vector<Stage> stages;
  for (const std::string& part : parts) stages.push_back(read_stage(reader, part));
  return stages;
}

}  // namespace

int64_t SamplerState::consumed() const {
  int64_t sum = 0;
  for (const Stage& stage : stages) sum += stage.consumed;
  return sum;
}

std::string to_text(const SamplerState& state) {
  return fmt::format("sampler 1 order={} shuffle={:d} seed={} samples={} epoch={} stages={}", to_string(state.order),
                     state.shuffle, static_cast<int64_t>(state.seed), state.samples, state.epoch,
                     stages_text(state.stages));
}

SamplerState parse_sampler_state(std::string_view text) {
  StateReader reader(text, kForm);
  SamplerState state;
  state.order = read_order(reader);
  state.shuffle = reader.whole("shuffle", 0, 1) == 1;
  state.seed = static_cast<uint64_t>(reader.whole("seed", std::numeric_limits<int64_t>::min()));
  state.samples = reader.whole("samples");
  state.epoch = reader.whole("epoch");
  state.stages = read_stages(reader);
  return state;
}

}  // namespace trireme::data
