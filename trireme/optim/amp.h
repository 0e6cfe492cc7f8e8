// Mixed precision: a guard that lets the forward pass run in bf16 or fp16, and the loss scale that fp16 needs.
//
//   GradScaler scaler({.enabled = dtype == torch::kHalf});
//   { Autocast amp({.device = torch::kCUDA, .dtype = dtype});  loss = loss_of(model->forward(x), y); }
//   scaler.scale(loss).backward();  scaler.step(optimizer);  scaler.update();
//
// O1 is the guard alone. O2 keeps the weights themselves in low precision: see master_weights.h.
// bf16 has float's range and needs no scaler. On a CPU that announces AMX but cannot run it, bf16 kills a process that
// `trireme launch` did not start: set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 there.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::optim {

/// Turns torch's autocast on for a device type, or off with enabled = false, in this thread until the end of the block;
/// then the old setting is back, also after an exception. Blocks may nest. The casts of weights are kept for the
/// outermost block and dropped at its end, since the optimizer changes the weights.
class Autocast {
 public:
  struct Options {
    c10::DeviceType device = torch::kCPU;
    c10::ScalarType dtype = torch::kBFloat16;  ///< or torch::kHalf; anything else is a UsageError
    bool enabled = true;
  };
  explicit Autocast(const Options& options);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType old_dtype_;
};

/// Multiplies the loss so that small fp16 gradients do not vanish, and leaves out steps whose gradients overflowed. The
/// scale grows while all goes well. Works for torch::optim's and for our own optimizers, for several of them too.
///
/// All ranks must agree on which steps are left out, else their weights diverge: `agree` is called once for each
/// optimizer and step, on every rank, with a tensor of one float that is above 0 where something was not finite; it
/// must set it to the maximum over ranks (an all_reduce).
///
/// Order of calls: scale(loss).backward(), unscale_() if gradients are to be clipped, step(), update(). A wrong order
/// is a UsageError. Thread rule: one thread at a time.
class GradScaler {
 public:
  struct Options {
    bool enabled = true;  ///< false: scale() returns the loss, step() just steps
    double init_scale = 65536;
    bool dynamic = true;             ///< false: the scale stays (PaddleClas' use_dynamic_loss_scaling)
    double growth = 2;               ///< incr_ratio
    double backoff = 0.5;            ///< decr_ratio
    int64_t growth_interval = 2000;  ///< steps in a row without overflow before it grows: incr_every_n_steps
    int64_t backoff_every = 1;       ///< overflows in a row before it falls: decr_every_n_nan_or_inf
    double min_scale = 1;            ///< it falls no lower
    std::function<void(torch::Tensor&)> agree = {};
  };

  explicit GradScaler(Options options);

  torch::Tensor scale(const torch::Tensor& loss);
  /// Divides the gradients by the scale, in place. step() does it when it was not called before.
  /// fp16 gradients are a UsageError: dividing them loses what the scale saved. Use MasterWeights.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// Steps unless a gradient on any rank was not finite. Returns whether it stepped. Waits for the GPU. UsageError for
  /// torch::optim::LBFGS over a model that is split over ranks.
  bool step(torch::optim::Optimizer& optimizer);
  /// Adapts the scale; once after the steps of all optimizers.
  void update();

  double current_scale() const;
  bool enabled() const { return options_.enabled; }

  /// "scaler 1 scale=65536 good=12 bad=0"
  std::string state_text() const;
  void load_state(std::string_view text);

 private:
  struct Unscaled {
    const torch::optim::Optimizer* optimizer;
    torch::Tensor found;  // above 0: something was not finite
    bool stepped = false;
  };
  Unscaled* find(const torch::optim::Optimizer& optimizer);
  void move_to(const torch::Device& device);
  torch::Tensor found_in_all() const;

  Options options_;
  torch::Tensor scale_, good_;      // good_: steps in a row without overflow
  int64_t bad_ = 0;                 // overflows in a row
  std::vector<Unscaled> unscaled_;  // since the last update()
};

}  // namespace trireme::optim
