// Forward and backward of a step as one CUDA graph, for Step. Internal to this folder.
//
// Words
//   watching    the first steps of a shape run as usual, while the operators that forward() calls are compared.
//   recording   the next step of that shape is rehearsed on the stream of the recording, and recorded after it.
//   replaying   from then on a step of that shape copies its batch to where the recording reads it, and replays.
//
// What a replay repeats is what was launched when it was recorded: operators, their memory, and the numbers that the
// host gave them. So before each replay the module is compared with the one that was recorded (tensors, which of them
// are trained, modes of all layers); when it differs, watching begins again. A forward() that calls other operators, or
// with other numbers, from step to step is not recorded at all. Steps of other shapes run as usual in between.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/backends/gpu_recording.h"
#include "trireme/train/network.h"

namespace trireme::train {

class StepGraph {
 public:
  explicit StepGraph(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}

  struct Batch {
    Tensors inputs, labels;
  };
  struct Result {
    torch::Tensor loss;
    Tensors outputs;
  };
  /// Forward and backward of a batch; leaves the gradients in the parameters.
  using Work = std::function<Result(const Batch& batch)>;
  /// Calls work, or replays what it did. Gradients must have been dropped. `forward` inside of `work` is to be wrapped in
  /// watch_forward().
  Result run(const Batch& batch, const Work& work);

  /// Runs forward() and, while this shape is watched, compares the operators that it calls with those before.
  void watch_forward(const std::function<void()>& forward);

 private:
  enum class State { watching, ready, recorded, refused };
  struct Seen {  // what a recording depends on
    std::vector<const void*> tensors;
    std::vector<uint8_t> modes;
    bool operator==(const Seen&) const = default;
  };

  Result watch(const Batch& batch, const Work& work);
  Result record(const Batch& batch, const Work& work);
  Result replay(const Batch& batch);
  void keep_gradients();
  void copy_in(const Batch& batch);
  bool has_shape_of(const Batch& batch) const;
  Seen look() const;
  void begin_again(const Batch& batch);
  void refuse(const std::string& reason);

  std::shared_ptr<torch::nn::Module> module_;
  State state_ = State::watching;
  Batch batch_;  // the shape that is watched; once recorded, what the recording reads
  int steps_ = 0;
  uint64_t operators_ = 0;  // of the last forward()
  Seen seen_;
  std::unique_ptr<comm::GpuRecording> recording_;
  Result result_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> gradients_;  // parameter and what is written to
};

}  // namespace trireme::train
