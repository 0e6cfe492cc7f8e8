#include "trireme/train/operators_of.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace trireme::train {
namespace {

void mix(uint64_t& hash, uint64_t number) {
  constexpr uint64_t kPrime = 0x100000001b3;  // FNV-1a
  hash = (hash ^ number) * kPrime;
}

// Reads the memory, because operators that were called here would be heard too.
void mix_value(uint64_t& hash, const torch::Tensor& tensor) {
  const bool is_number = tensor.defined() && tensor.is_cpu() && tensor.layout() == torch::kStrided && tensor.dim() == 0;
  if (!is_number || !tensor.has_storage()) return;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  for (size_t i = 0; bytes != nullptr && i < tensor.itemsize(); ++i) mix(hash, bytes[i]);
}

void mix_numbers(uint64_t& hash, const c10::IValue& value) {
  if (value.isInt()) mix(hash, static_cast<uint64_t>(value.toInt()));
  if (value.isBool()) mix(hash, value.toBool() ? 1 : 2);
  if (value.isDouble()) mix(hash, std::hash<double>()(value.toDouble()));
  if (value.isIntList())
    for (const int64_t number : value.toIntVector()) mix(hash, static_cast<uint64_t>(number));
  if (value.isScalar() && !value.isInt() && !value.isBool() && !value.isDouble())
    mix(hash, std::hash<double>()(value.toScalar().toDouble()));
  if (value.isTensor()) mix_value(hash, value.toTensor());
  if (value.isTensorList())
    for (const torch::Tensor& tensor : value.toTensorVector()) mix_value(hash, tensor);
}

/// Whether the operator reads the values of this argument. One that writes to it, or makes a view of it, may be given
/// memory that holds anything: sum() fills a new tensor in place, after as_strided().
bool is_read(const std::optional<c10::FunctionSchema>& schema, size_t argument) {
  if (!schema || argument >= schema->arguments().size()) return true;
  return schema->arguments()[argument].alias_info() == nullptr;
}

thread_local uint64_t heard = 0;

std::unique_ptr<at::ObserverContext> hear(const at::RecordFunction& function) {
  mix(heard, std::hash<std::string_view>()(function.name()));
  const auto schema = function.operator_schema();
  const auto inputs = function.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_read(schema, i)) mix_numbers(heard, inputs[i]);
  return nullptr;
}

}  // namespace

uint64_t operators_of(const std::function<void()>& run) {
  heard = 0xcbf29ce484222325;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(hear).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  struct Remove {
    at::CallbackHandle handle;
    ~Remove() { at::removeCallback(handle); }
  } const remove{handle};
  run();
  return heard;
}

}  // namespace trireme::train
