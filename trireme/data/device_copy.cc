#include "trireme/data/device_copy.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <utility>

namespace trireme::data {
namespace {

torch::Tensor pinned(const torch::Tensor& tensor) {
  return tensor.is_cpu() ? tensor.pin_memory() : tensor;
}

}  // namespace

/// torch's interface to the streams of any device, which needs no CUDA header.
struct DeviceCopy::Stream {
  explicit Stream(torch::Device device)
      : streams(device.type()), own(streams.getStreamFromGlobalPool(device)), copied(device.type()) {}
  c10::impl::VirtualGuardImpl streams;
  c10::Stream own;
  c10::Event copied;
};

Batch pinned(Batch batch, torch::Device device) {
  if (!device.is_cuda()) return batch;
  const c10::DeviceGuard guard(device);  // a fresh thread would open the first GPU otherwise
  return batch.map([](const torch::Tensor& tensor) { return pinned(tensor); });
}

DeviceCopy::DeviceCopy(torch::Device device)
    : device_(device), stream_(device.is_cuda() ? std::make_unique<Stream>(device) : nullptr) {}

DeviceCopy::~DeviceCopy() = default;
DeviceCopy::DeviceCopy(DeviceCopy&&) noexcept = default;
DeviceCopy& DeviceCopy::operator=(DeviceCopy&&) noexcept = default;

bool DeviceCopy::overlaps() const {
  return stream_ != nullptr;
}

void DeviceCopy::send(const Batch& batch) {
  if (!stream_) {
    batch_ = batch.map([this](const torch::Tensor& tensor) { return tensor.to(device_); });
    return;
  }
  const c10::StreamGuard guard(stream_->own);
  batch_ = batch.map([this](const torch::Tensor& tensor) { return tensor.to(device_, /*non_blocking=*/true); });
  stream_->copied.record(stream_->own);
}

Batch DeviceCopy::receive() {
  Batch batch = *std::exchange(batch_, std::nullopt);
  if (!stream_) return batch;
  const c10::Stream current = stream_->streams.getStream(device_);
  stream_->copied.block(current);
  // Its memory belongs to our stream: it must not be given out again there while the current one still uses it.
  for (size_t i = 0; i < batch.size(); ++i)
    if (batch.tensor(i).defined()) batch.tensor(i).record_stream(current);
  return batch;
}

}  // namespace trireme::data
