// How much memory the CPU tensors of this process take, and the most they have taken.
//
//   AllocationCounter& counter = count_allocations();       // after init_parallel_env(), before the tensors are made
//   counter.start_peak();  …  counter.peak();
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace trireme::test {

/// Counts what goes through libtorch's CPU allocator and hands it on to the one that was there. Thread-safe.
class AllocationCounter final : public c10::Allocator {
 public:
  explicit AllocationCounter(c10::Allocator* next) : next_(next) {}

  int64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  /// The peak from now on.
  void start_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = bytes_;
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* const data = next_->raw_allocate(bytes);
    if (data != nullptr) add(data, static_cast<int64_t>(bytes));
    return {data, data, raw_deleter(), c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

  static inline AllocationCounter* installed = nullptr;  // a deleter has no other way to know it

 private:
  void add(void* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[data] = bytes;
    bytes_ += bytes;
    peak_ = std::max(peak_, bytes_);
  }
  void remove(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    if (found == sizes_.end()) return;
    bytes_ -= found->second;
    sizes_.erase(found);
  }
  static void free_counted(void* data) {
    if (data == nullptr) return;
    installed->remove(data);
    installed->next_->raw_deleter()(data);
  }

  c10::Allocator* next_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t bytes_ = 0;
  int64_t peak_ = 0;
};

inline AllocationCounter& count_allocations() {
  constexpr uint8_t kPriority = 200;  // over trireme's own
  if (AllocationCounter::installed == nullptr) {
    AllocationCounter::installed = new AllocationCounter(c10::GetCPUAllocator());  // never destroyed, as tensors may
    c10::SetCPUAllocator(AllocationCounter::installed, kPriority);
  }
  return *AllocationCounter::installed;
}

}  // namespace trireme::test
