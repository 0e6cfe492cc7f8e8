#include "trireme/parallel/sharded/use_watch.h"

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace trireme::parallel {
namespace {

struct Watched {
  std::weak_ptr<UseListener> listener;
  const UseListener* identity;
  size_t place;
};

// Read by every operator of every thread, written when a model is made or goes.
class Registry {
 public:
  void add(const std::shared_ptr<UseListener>& listener, const std::vector<WatchedMemory>& memory) {
    const std::unique_lock lock(mutex_);
    for (const WatchedMemory& one : memory) watched_[one.address] = {listener, listener.get(), one.place};
    update_callback();
  }
  void remove(const UseListener* listener) {
    const std::unique_lock lock(mutex_);
    std::erase_if(watched_, [&](const auto& item) { return item.second.identity == listener; });
    update_callback();
  }

  /// Appends who watches this address.
  void find(const void* address, std::vector<std::pair<std::shared_ptr<UseListener>, size_t>>& found) {
    const std::shared_lock lock(mutex_);
    const auto item = watched_.find(address);
    if (item == watched_.end()) return;
    if (auto listener = item->second.listener.lock()) found.emplace_back(std::move(listener), item->second.place);
  }

 private:
  void update_callback();

  std::shared_mutex mutex_;
  std::unordered_map<const void*, Watched> watched_;
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;
};

// Never destroyed, as operators may run while the process ends.
Registry& registry() {
  static auto* const one = new Registry;
  return *one;
}

// The uses of an operator, from its start to its end.
struct Uses final : at::ObserverContext {
  std::vector<std::pair<std::shared_ptr<UseListener>, MemoryUse>> all;
};

template <typename Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) visit(element.toTensor());
  }
}

// Which inputs the operator changes. A schema takes microseconds to copy, so the answer is kept; an operator's name lies
// in its schema, which stays, and so the name's address stands for the operator.
const std::vector<bool>& changed_inputs(const at::RecordFunction& operation) {
  thread_local std::unordered_map<const char*, std::vector<bool>> known;
  const auto [item, is_new] = known.try_emplace(operation.name());
  if (!is_new) return item->second;
  if (std::string_view(operation.name()) == "aten::requires_grad_") return item->second;  // no number changes
  if (const std::optional<c10::FunctionSchema> schema = operation.operator_schema())
    for (const c10::Argument& argument : schema->arguments())
      item->second.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
  return item->second;
}

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& operation) {
  thread_local std::vector<std::pair<std::shared_ptr<UseListener>, size_t>> found;
  std::unique_ptr<Uses> uses;
  const auto inputs = operation.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    found.clear();
    visit_tensors(inputs[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      registry().find(tensor.unsafeGetTensorImpl(), found);
      if (tensor.has_storage()) registry().find(tensor.storage().unsafeGetStorageImpl(), found);
    });
    if (found.empty()) continue;
    if (!uses) uses = std::make_unique<Uses>();
    const std::vector<bool>& changed = changed_inputs(operation);
    const bool changes = i < changed.size() && changed[i];
    for (auto& [listener, place] : found)
      uses->all.emplace_back(std::move(listener), MemoryUse{place, operation.name(), changes});
  }
  found.clear();
  if (!uses) return nullptr;
  for (const auto& [listener, use] : uses->all) listener->before_use(use);
  return uses;
}

void after_operator(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  for (const auto& [listener, use] : static_cast<Uses*>(context)->all) listener->after_use(use);
}

void Registry::update_callback() {
  if (!watched_.empty() && callback_ == at::INVALID_CALLBACK_HANDLE) {
    at::RecordFunctionCallback callback(&before_operator, &after_operator);
    callback_ = at::addGlobalCallback(callback.needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  } else if (watched_.empty() && callback_ != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(std::exchange(callback_, at::INVALID_CALLBACK_HANDLE));
  }
}

}  // namespace

void listen_to_uses(const std::shared_ptr<UseListener>& listener, const std::vector<WatchedMemory>& memory) {
  registry().add(listener, memory);
}

void forget_uses(const UseListener* listener) {
  registry().remove(listener);
}

}  // namespace trireme::parallel
