// Brings batches to a device. To a GPU they go through pinned memory on a stream of their own, so that one can travel
// while the GPU computes on the one before.
//
//   DeviceCopy copy(device);
//   copy.send(pinned(batch, device));             // begins, and does not wait
//   Batch there = copy.receive();                 // the current stream waits for it; this thread does not
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>

#include "trireme/data/dataset.h"

namespace trireme::data {

/// The batch in memory that a GPU can read by itself, when the device is one; else the batch as it is. Any thread may
/// call it; a worker's does, so that this copy costs the training loop nothing.
Batch pinned(Batch batch, torch::Device device);

/// For one thread at a time.
class DeviceCopy {
 public:
  explicit DeviceCopy(torch::Device device);
  ~DeviceCopy();
  DeviceCopy(DeviceCopy&&) noexcept;
  DeviceCopy& operator=(DeviceCopy&&) noexcept;

  /// Whether a batch that is sent early is copied while the device computes.
  bool overlaps() const;
  /// Requires that no batch is on its way.
  void send(const Batch& batch);
  bool on_its_way() const { return batch_.has_value(); }
  /// Requires that one is.
  Batch receive();
  void forget() { batch_.reset(); }

 private:
  struct Stream;
  torch::Device device_;
  std::unique_ptr<Stream> stream_;  // null: plain copies
  std::optional<Batch> batch_;
};

}  // namespace trireme::data
