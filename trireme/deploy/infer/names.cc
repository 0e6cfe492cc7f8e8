#include <array>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/deploy/infer/engine.h"

namespace trireme::infer {
namespace {

template <typename T>
using Names = std::vector<std::pair<const char*, T>>;

const Names<EngineKind>& engines() {
  static const Names<EngineKind> names = {
      {"auto", EngineKind::automatic}, {"openvino", EngineKind::openvino}, {"torch", EngineKind::torch}};
  return names;
}

const Names<Precision>& precisions() {
  static const Names<Precision> names = {
      {"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}};
  return names;
}

template <typename T>
T parse(const Names<T>& names, std::string_view text, const char* what) {
  std::vector<std::string> known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known.emplace_back(name);
  }
  throw UsageError("there is no {} '{}'; there are {}", what, printable(text), join(known, ", "));
}

template <typename T>
const char* name_of(const Names<T>& names, T wanted) {
  for (const auto& [name, value] : names)
    if (value == wanted) return name;
  return "?";
}

}  // namespace

EngineKind parse_engine(std::string_view name) {
  return parse(engines(), name, "engine");
}

const char* to_string(EngineKind kind) {
  return name_of(engines(), kind);
}

Precision parse_precision(std::string_view name) {
  return parse(precisions(), name, "precision");
}

const char* to_string(Precision precision) {
  return name_of(precisions(), precision);
}

}  // namespace trireme::infer
