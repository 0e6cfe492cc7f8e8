#include "trireme/comm/shared_tensors.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "trireme/comm/engine/shm/arena.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/memory.h"

namespace trireme::comm {
namespace {

constexpr uint8_t kPriority = 100;  // over libtorch's own, which has 0

class SharedAllocator : public c10::Allocator {
 public:
  explicit SharedAllocator(shm::Arena& arena) { arena_ = &arena; }

  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes >= kLargeTensor ? arena_->allocate(bytes) : nullptr;
    if (data == nullptr) data = c10::alloc_cpu(bytes);
    return {data, data, &free_either, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_either; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

 private:
  static void free_either(void* data) {
    if (arena_->contains(data))
      arena_->release(data);
    else
      c10::free_cpu(data);
  }

  static inline shm::Arena* arena_ = nullptr;  // of the process; a deleter has no other way to know it
};

// As many addresses as one rank could ever use, but all ranks' arenas, which each of them maps, must fit in them too. Plain
// memory is not asked for before it is touched, so of that there is no more than the machine has: malloc refuses the rest.
void install(int local_ranks) {
  const bool shared = local_ranks > 1;
  const size_t share = memory_of_machine() / static_cast<size_t>(std::max(1, local_ranks));
  shm::Arena& arena =
      shm::Arena::make_for_process({.capacity = shared ? 2 * share : share, .keep = share / 2, .shared = shared});
  static auto* const allocator = new SharedAllocator(arena);  // never destroyed: a thread may allocate until the end
  c10::SetCPUAllocator(allocator, kPriority);
}

}  // namespace

void share_large_tensors(int local_ranks) {
  static std::once_flag once;
  std::call_once(once, [&] {
    try {
      install(local_ranks);
    } catch (const SystemError& error) {
      log_info("tensors stay in memory of their own, and all_reduce copies them: {}", error.what());
    }
  });
}

}  // namespace trireme::comm
