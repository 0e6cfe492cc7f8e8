// Work of a GPU that is recorded once (a CUDA graph) and then repeated by one call, without the time that each of its
// kernels takes to launch.
#pragma once

#include <functional>
#include <memory>

namespace trireme::comm {

/// Thread rule: one thread at a time.
class GpuRecording {
 public:
  virtual ~GpuRecording() = default;
  /// Runs the work on the stream that record() uses: libraries allocate there what they keep. Returns whether it can be
  /// recorded: false when it waits for the GPU, as item() does.
  virtual bool rehearse(const std::function<void()>& work) = 0;
  /// Records what the work launches; nothing of it runs. Throws, with CUDA's reason, when it does what cannot be
  /// recorded; then nothing is recorded.
  virtual void record(const std::function<void()>& work) = 0;
  /// Runs what was recorded on the present stream: reads and writes the same memory as it was recorded with.
  virtual void replay() = 0;
};

/// UsageError when why_no_cuda() says something.
std::unique_ptr<GpuRecording> make_gpu_recording(int device);

}  // namespace trireme::comm
