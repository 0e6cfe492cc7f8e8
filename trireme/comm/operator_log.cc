#include "trireme/comm/operator_log.h"

#include <ATen/record_function.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <atomic>
#include <mutex>
#include <string_view>

#include "trireme/core/log.h"

namespace trireme::comm {
namespace {

std::atomic<int> g_rank = 0;
thread_local int t_depth = 0;  // of operators within operators

std::string describe(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return "";
  const torch::Tensor& tensor = value.toTensor();
  return fmt::format(" {}[{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

// Of a backward's function without what is the same for all.
std::string_view short_name(std::string_view name) {
  constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
  return name.starts_with(kEngine) ? name.substr(kEngine.size()) : name;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  if (t_depth++ > 0) return nullptr;
  std::string tensors;
  for (const c10::IValue& input : function.inputs()) tensors += describe(input);
  log_info("rank {} runs {}{}", g_rank.load(), short_name(function.name()), tensors);
  return nullptr;
}

void end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
  --t_depth;
}

}  // namespace

void log_operators(int rank) {
  g_rank = rank;
  static std::once_flag begun;
  std::call_once(begun, [] {
    at::addGlobalCallback(at::RecordFunctionCallback(begin, end)
                              .needsInputs(true)
                              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  });
}

}  // namespace trireme::comm
