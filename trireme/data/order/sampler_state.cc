#include "trireme/data/order/sampler_state.h"

#include <fmt/core.h>

#include <limits>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

constexpr std::string_view kHead = "sampler 1";
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxRanks = 1 << 20;  // a damaged number must not ask for terabytes of padding
constexpr size_t kMaxStages = 1000;

std::string stages_text(const std::vector<Stage>& stages) {
  std::vector<std::string> parts;
  for (const Stage& stage : stages) parts.push_back(fmt::format("{}:{}", stage.ranks, stage.consumed));
  return parts.empty() ? "none" : join(parts, ",");
}

[[noreturn]] void refuse(std::string_view text, std::string_view part) {
  throw UsageError(
      "sampler state '{}': '{}' is not understood; expected '{} order=… shuffle=… seed=… samples=… epoch=… "
      "stages=RANKS:CONSUMED,…'",
      printable(text.substr(0, 200)), printable(part.substr(0, 100)), kHead);
}

/// Reads the parts NAME=VALUE one after the other, in their fixed order.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text), parts_(split(text, ' ')) {
    if (parts_.size() != 8 || parts_[0] + " " + parts_[1] != kHead) refuse(text, text.substr(0, kHead.size()));
  }

  std::string_view value(std::string_view name) {
    part_ = parts_[next_++];
    if (!part_.starts_with(name) || part_.substr(name.size(), 1) != "=") refuse(text_, part_);
    return part_.substr(name.size() + 1);
  }

  int64_t number(std::string_view name, int64_t high) { return number_in(value(name), 0, high); }

  int64_t number_in(std::string_view digits, int64_t low, int64_t high) const {
    const auto number = parse_int(digits, low, high);
    if (!number) refuse(text_, part_);
    return *number;
  }

  Order order() {
    const std::string_view name = value("order");
    for (const Order order : {Order::paddle, Order::torch})
      if (name == to_string(order)) return order;
    refuse(text_, part_);
  }

  std::vector<Stage> stages() {
    const std::string_view list = value("stages");
    if (list == "none") return {};
    const auto parts = split(list, ',');
    if (parts.empty() || parts.size() > kMaxStages) refuse(text_, part_);
    std::vector<Stage> stages;
    for (const std::string& part : parts) stages.push_back(stage(part));
    return stages;
  }

 private:
  Stage stage(std::string_view text) const {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) refuse(text_, part_);
    return {.ranks = number_in(text.substr(0, colon), 1, kMaxRanks),
            .consumed = number_in(text.substr(colon + 1), 0, kMax)};
  }

  std::string_view text_;
  std::vector<std::string> parts_;
  std::string_view part_;
  size_t next_ = 2;
};

}  // namespace

int64_t SamplerState::consumed() const {
  int64_t sum = 0;
  for (const Stage& stage : stages) sum += stage.consumed;
  return sum;
}

std::string to_text(const SamplerState& state) {
  return fmt::format("{} order={} shuffle={:d} seed={} samples={} epoch={} stages={}", kHead, to_string(state.order),
                     state.shuffle, static_cast<int64_t>(state.seed), state.samples, state.epoch,
                     stages_text(state.stages));
}

SamplerState parse_sampler_state(std::string_view text) {
  Reader reader(text);
  SamplerState state;
  state.order = reader.order();
  state.shuffle = reader.number("shuffle", 1) == 1;
  state.seed = static_cast<uint64_t>(reader.number_in(reader.value("seed"), std::numeric_limits<int64_t>::min(), kMax));
  state.samples = reader.number("samples", kMax);
  state.epoch = reader.number("epoch", kMax);
  state.stages = reader.stages();
  return state;
}

}  // namespace trireme::data
