#include "trireme/deploy/export/onnx_model.h"

#include <fmt/core.h>

#include "trireme/core/error.h"
#include "trireme/core/version.h"

namespace trireme::deploy {

using io::Message;

namespace {

// The field numbers of onnx.proto.
namespace model_field {
constexpr int kIrVersion = 1, kProducer = 2, kProducerVersion = 3, kGraph = 7, kOpset = 8;
}
namespace opset_field {
constexpr int kDomain = 1, kVersion = 2;
}
namespace graph_field {
constexpr int kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12;
}
namespace node_field {
constexpr int kInput = 1, kOutput = 2, kName = 3, kOp = 4, kAttribute = 5;
}
namespace attribute_field {
constexpr int kName = 1, kFloat = 2, kInt = 3, kText = 4, kInts = 8, kType = 20;
}
namespace tensor_field {
constexpr int kDim = 1, kType = 2, kName = 8, kRaw = 9;
}
namespace value_field {
constexpr int kName = 1, kType = 2, kTensor = 1, kElement = 1, kShape = 2, kDim = 1, kDimValue = 1, kDimName = 2;
}

/// AttributeProto's name for the kind of a value.
enum AttributeType { kFloatType = 1, kIntType = 2, kTextType = 3, kIntsType = 7 };

struct AttributeWriter {
  Message& out;
  void operator()(int64_t value) const {
    out.integer(attribute_field::kInt, value).integer(attribute_field::kType, kIntType);
  }
  void operator()(float value) const {
    out.number(attribute_field::kFloat, value).integer(attribute_field::kType, kFloatType);
  }
  void operator()(const std::string& value) const {
    out.bytes(attribute_field::kText, value).integer(attribute_field::kType, kTextType);
  }
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values) out.integer(attribute_field::kInts, value);
    out.integer(attribute_field::kType, kIntsType);
  }
};

Message message_of(const OnnxAttribute& attribute) {
  Message out;
  out.bytes(attribute_field::kName, attribute.name);
  std::visit(AttributeWriter{out}, attribute.value);
  return out;
}

Message message_of(const OnnxNode& node, const std::string& name) {
  Message out;
  for (const std::string& input : node.inputs) out.bytes(node_field::kInput, input);
  for (const std::string& output : node.outputs) out.bytes(node_field::kOutput, output);
  out.bytes(node_field::kName, name).bytes(node_field::kOp, node.op);
  for (const OnnxAttribute& attribute : node.attributes) out.message(node_field::kAttribute, message_of(attribute));
  return out;
}

/// All of a weight's message but its bytes, which come last.
Message head_of(const OnnxWeight& weight) {
  Message tensor;
  for (const int64_t size : weight.shape) tensor.integer(tensor_field::kDim, size);
  tensor.integer(tensor_field::kType, static_cast<int64_t>(weight.type)).bytes(tensor_field::kName, weight.name);
  const std::string raw = Message::value_follows(tensor_field::kRaw, weight.bytes.size()).text();
  const std::string head = tensor.text() + raw;
  Message all = Message::value_follows(graph_field::kInitializer, head.size() + weight.bytes.size());
  return all.append(head);
}

Message message_of(const OnnxSize& size) {
  if (const int64_t* number = std::get_if<int64_t>(&size)) return Message().integer(value_field::kDimValue, *number);
  const std::string& name = std::get<std::string>(size);
  return name.empty() ? Message() : Message().bytes(value_field::kDimName, name);
}

Message message_of(const OnnxPort& port) {
  using namespace value_field;
  Message shape;
  for (const OnnxSize& size : port.shape) shape.message(kDim, message_of(size));
  const Message tensor = Message().integer(kElement, static_cast<int64_t>(port.type)).message(kShape, shape);
  return Message().bytes(kName, port.name).message(kType, Message().message(kTensor, tensor));
}

}  // namespace

void OnnxModel::add(const OnnxNode& node) {
  nodes_.message(graph_field::kNode, message_of(node, fmt::format("{}_{}", node.op, node_count_++)));
}

void OnnxModel::add(OnnxWeight weight) {
  weights_.push_back(std::move(weight));
}

Message OnnxModel::graph_ends() const {
  Message ends;
  ends.bytes(graph_field::kName, name_).message(graph_field::kInput, message_of(input_));
  for (const OnnxPort& output : outputs_) ends.message(graph_field::kOutput, message_of(output));
  return ends;
}

uint64_t OnnxModel::graph_size() const {
  uint64_t size = nodes_.text().size() + graph_ends().text().size();
  for (const OnnxWeight& weight : weights_) size += head_of(weight).text().size() + weight.bytes.size();
  return size;
}

Message OnnxModel::model_head() const {
  Message model;
  model.integer(model_field::kIrVersion, kOnnxIr)
      .bytes(model_field::kProducer, "trireme")
      .bytes(model_field::kProducerVersion, kVersion)
      .message(model_field::kOpset,
               Message().bytes(opset_field::kDomain, "").integer(opset_field::kVersion, kOnnxOpset));
  return model.append(Message::value_follows(model_field::kGraph, graph_size()).text());
}

uint64_t OnnxModel::size() const {
  return model_head().text().size() + graph_size();
}

void OnnxModel::write(const std::function<void(std::string_view)>& sink) const {
  if (size() > kMaxBytes)
    throw UsageError("{} would be an ONNX file of {} bytes, and readers take {} at most; export without it", name_,
                     size(), kMaxBytes);
  sink(model_head().text());
  sink(nodes_.text());
  sink(graph_ends().text());
  for (const OnnxWeight& weight : weights_) {
    sink(head_of(weight).text());
    sink(weight.bytes);
  }
}

}  // namespace trireme::deploy
