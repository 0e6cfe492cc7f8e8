// Rules for LSTM and GRU: a chain of ONNX nodes, one for each layer. torch and ONNX have the same arithmetic, the gates
// in another order, and sequences in the first dimension or the second.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace recurrent {
namespace {

namespace jit = torch::jit;

struct Kind {
  const char* op;
  std::vector<int64_t> gates;  ///< for each of ONNX's gates, which of torch's it is
  size_t states;               ///< 2 with a cell
};

const Kind kLstm = {"LSTM", {0, 3, 1, 2}, 2};  // torch: input forget cell output; ONNX: input output forget cell
const Kind kGru = {"GRU", {1, 0, 2}, 1};       // torch: reset update new; ONNX: update reset new

class Recurrent {
 public:
  Recurrent(Lowering& to, const Kind& kind)
      : to_(to),
        kind_(kind),
        layers_(to.integer("num_layers")),
        directions_(to.flag("bidirectional") ? 2 : 1),
        weights_(list("params")) {
    if (!to.has("batch_first")) to.refuse("reads packed sequences; that is not known");
    if (to.flag("train") && to.number("dropout") != 0) to.refuse("drops out at random");
    const size_t expected = static_cast<size_t>(layers_ * directions_) * per_direction();
    if (weights_.size() != expected) to.refuse("projects its state (proj_size); that is not known");
  }

  void run() {
    std::string x = turned(to_.value("input"));
    std::vector<Names> last(kind_.states);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const Names outputs = to_.emit_many(kind_.op, inputs(layer, x), attributes(), 1 + kind_.states);
      x = joined(outputs[0]);
      for (size_t i = 0; i < kind_.states; ++i) last[i].push_back(outputs[1 + i]);
    }
    to_.same_as(to_.output(0), turned(x));
    for (size_t i = 0; i < kind_.states; ++i)
      to_.same_as(to_.output(1 + i),
                  last[i].size() == 1 ? last[i][0] : to_.emit("Concat", last[i], {{"axis", int64_t{0}}}));
  }

 private:
  size_t per_direction() const { return to_.flag("has_biases") ? 4 : 2; }

  std::vector<const jit::Value*> list(const char* name) const {
    const auto inputs = to_.argument(name)->node()->inputs();
    return {inputs.begin(), inputs.end()};
  }

  /// ONNX has the sequence first.
  std::string turned(const std::string& x) {
    return to_.flag("batch_first") ? to_.emit("Transpose", {x}, {{"perm", Ints{1, 0, 2}}}) : x;
  }

  /// sequence x directions x batch x size -> sequence x batch x (directions * size)
  std::string joined(const std::string& y) {
    const std::string turned = to_.emit("Transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}});
    return to_.emit("Reshape", {turned, to_.constant(Ints{0, 0, -1})});
  }

  /// One of the weights of a layer, in ONNX's order of gates, on the CPU.
  torch::Tensor gates(int64_t layer, int64_t direction, size_t which) const {
    const size_t first = static_cast<size_t>(layer * directions_ + direction) * per_direction();
    const Weight* weight = to_.weight(weights_[first + which]);
    if (weight == nullptr) to_.refuse("has weights that are computed");
    const auto parts = weight->value.to(torch::kFloat).chunk(static_cast<int64_t>(kind_.gates.size()));
    std::vector<torch::Tensor> ordered;
    for (const int64_t gate : kind_.gates) ordered.push_back(parts[static_cast<size_t>(gate)]);
    return torch::cat(ordered);
  }

  /// For all directions of a layer: of the input, of the state, and both biases in one.
  std::string stacked(int64_t layer, size_t which) {
    std::vector<torch::Tensor> each;
    for (int64_t direction = 0; direction < directions_; ++direction) each.push_back(gates(layer, direction, which));
    return to_.constant(torch::stack(each));
  }

  std::string biases(int64_t layer) {
    if (!to_.flag("has_biases")) return "";
    std::vector<torch::Tensor> each;
    for (int64_t direction = 0; direction < directions_; ++direction)
      each.push_back(torch::cat({gates(layer, direction, 2), gates(layer, direction, 3)}));
    return to_.constant(torch::stack(each));
  }

  /// Of a layer, from those of all layers.
  std::string state(int64_t layer, const jit::Value* all) {
    if (layers_ == 1) return to_.value(all);
    const Ints from{layer * directions_}, end{(layer + 1) * directions_};
    return to_.emit("Slice", {to_.value(all), to_.constant(from), to_.constant(end), to_.constant(Ints{0})});
  }

  Names inputs(int64_t layer, const std::string& x) {
    Names all = {x, stacked(layer, 0), stacked(layer, 1), biases(layer), ""};
    const auto* states = to_.argument("hx");
    if (kind_.states == 1) {
      all.push_back(state(layer, states));
    } else {
      for (const jit::Value* each : list("hx")) all.push_back(state(layer, each));
    }
    return all;
  }

  std::vector<OnnxAttribute> attributes() const {
    const torch::Tensor& of_state = to_.weight(weights_.at(1))->value;
    std::vector<OnnxAttribute> all = {{"hidden_size", of_state.size(1)},
                                      {"direction", std::string(directions_ == 2 ? "bidirectional" : "forward")}};
    if (kind_.states == 1) all.push_back({"linear_before_reset", int64_t{1}});
    return all;
  }

  Lowering& to_;
  const Kind& kind_;
  const int64_t layers_, directions_;
  const std::vector<const jit::Value*> weights_;
};

void lstm(Lowering& to) {
  Recurrent(to, kLstm).run();
}

void gru(Lowering& to) {
  Recurrent(to, kGru).run();
}

constexpr RuleEntry kRules[] = {{"gru", gru}, {"lstm", lstm}};

}  // namespace
}  // namespace recurrent

std::span<const RuleEntry> recurrent_rules() {
  return recurrent::kRules;
}

}  // namespace trireme::deploy
