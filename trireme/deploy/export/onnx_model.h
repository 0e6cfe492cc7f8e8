// An ONNX file that is being built: nodes, weights, one input and outputs. Knows the file's format and nothing of what
// the operators mean.
//
//   OnnxModel model("LeNet", {"x", {"batch", 1, 28, 28}}, {{"y", {"batch", 1, 28, 28}}});
//   model.add({.op = "Relu", .inputs = {"x"}, .outputs = {"y"}});
//   model.write([&](std::string_view bytes) { file.write(bytes); });
//
// Weights are not copied: their bytes must live until write() has returned. For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/io/format/protobuf.h"

namespace trireme::deploy {

inline constexpr int64_t kOnnxOpset = 14;  // the first with HardSwish
inline constexpr int64_t kOnnxIr = 7;      // the format's version that came with it

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::vector<int64_t>, std::string> value;
};

struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs;  ///< an empty name: left out
  std::vector<std::string> outputs;
  std::vector<OnnxAttribute> attributes = {};
};

/// The numbers that ONNX has for them.
enum class OnnxType { float32 = 1, int64 = 7, boolean = 9 };

struct OnnxWeight {
  std::string name;
  OnnxType type;
  std::vector<int64_t> shape;
  std::string_view bytes;  ///< row by row, little-endian
};

/// A size, or the name of one that is open; an empty name: open, and nothing is said of it.
using OnnxSize = std::variant<int64_t, std::string>;

/// The input or output of a model.
struct OnnxPort {
  std::string name;
  std::vector<OnnxSize> shape;
  OnnxType type = OnnxType::float32;
};

class OnnxModel {
 public:
  /// Readers of protocol buffers take no larger file.
  static constexpr uint64_t kMaxBytes = (uint64_t{1} << 31) - 1;

  OnnxModel(std::string name, OnnxPort input, std::vector<OnnxPort> outputs)
      : name_(std::move(name)), input_(std::move(input)), outputs_(std::move(outputs)) {}

  void add(const OnnxNode& node);
  void add(OnnxWeight weight);

  uint64_t size() const;
  /// Hands the file to `sink` piece by piece. UsageError when it would have more than kMaxBytes.
  void write(const std::function<void(std::string_view)>& sink) const;

 private:
  io::Message graph_ends() const;
  uint64_t graph_size() const;
  io::Message model_head() const;

  std::string name_;
  OnnxPort input_;
  std::vector<OnnxPort> outputs_;
  io::Message nodes_;
  int node_count_ = 0;
  std::vector<OnnxWeight> weights_;
};

}  // namespace trireme::deploy
