#include "trireme/comm/engine/dtype.h"

#include <stdexcept>

#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

struct Properties {
  const char* name;
  size_t size;
  bool floating;
};

constexpr Properties kProperties[] = {
    {"float", 4, true},  {"double", 8, true}, {"half", 2, true},   {"bfloat16", 2, true}, {"int8", 1, false},
    {"uint8", 1, false}, {"int16", 2, false}, {"int32", 4, false}, {"int64", 8, false},   {"bool", 1, false}};

const Properties& properties(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= std::size(kProperties)) throw std::logic_error("no such DType");
  return kProperties[index];
}

}  // namespace

size_t size_of(DType dtype) {
  return properties(dtype).size;
}

bool is_floating(DType dtype) {
  return properties(dtype).floating;
}

const char* to_string(DType dtype) {
  return properties(dtype).name;
}

const char* to_string(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "prod", "min", "max", "avg"};
  return kNames[static_cast<size_t>(op)];
}

void check_reducible(DType dtype, ReduceOp op) {
  if (op == ReduceOp::avg && !is_floating(dtype))
    throw UsageError("avg of {}: only floating types have an average; use sum and divide as you mean it",
                     to_string(dtype));
}

}  // namespace trireme::comm
