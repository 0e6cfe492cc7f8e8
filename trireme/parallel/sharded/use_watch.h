// A call before and after every operator that uses certain memory.
//
// libtorch's C++ modules have no hooks around forward(). Its dispatcher, though, reports every operator with its inputs,
// in forward and in backward, before the operator looks at any value. So whoever lends memory to parameters only while it
// is needed can fill it just in time, for any module, unchanged. The report costs 0.8 us for an operator, and only in
// processes that have such a model.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace trireme::parallel {

/// What an operator does to the memory.
struct MemoryUse {
  size_t place;           ///< as watched
  const char* operation;  ///< "aten::linear"
  bool writes;            ///< it may change one of its inputs
};

class UseListener {
 public:
  virtual ~UseListener() = default;
  /// Called on the thread of the operator. Must not throw: libtorch would drop the exception and go on.
  virtual void before_use(const MemoryUse& use) noexcept = 0;
  virtual void after_use(const MemoryUse& use) noexcept = 0;
};

/// A tensor or a storage, by its address (TensorImpl, StorageImpl), and the number by which the listener knows it.
struct WatchedMemory {
  const void* address;
  size_t place;
};

/// From now on the listener sees operators with these among their inputs, until forget_uses(). The addresses
/// must stay valid until then. Operators under at::DisableRecordFunctionGuard are not reported. Thread-safe.
void listen_to_uses(const std::shared_ptr<UseListener>& listener, const std::vector<WatchedMemory>& memory);
void forget_uses(const UseListener* listener);

}  // namespace trireme::parallel
