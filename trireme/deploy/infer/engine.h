// What computes a network: the contract between Predictor and OpenVINO, libtorch or an engine of yours.
//
//   std::unique_ptr<Engine> engine = make_engine({.folder = "inference", .kind = EngineKind::openvino}, description);
//   engine->run(images, 8, scores);      // 8 x 3 x 224 x 224 floats in, 8 x 1000 out
//
// OpenVINO and libtorch are plugins (libtrireme_openvino.so, libtrireme_torch.so), loaded when first asked for: a
// program that uses one of them needs not the other.
//
// Thread rule: run() may be called by several threads at once; the others at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/deploy/bundle/description.h"

namespace trireme::infer {

enum class EngineKind {
  automatic,  ///< on a CPU openvino, or torch where that is absent; on a GPU torch
  openvino,   ///< reads inference.onnx; CPU
  torch,      ///< reads inference.pt; CPU and GPU
};

/// What the network computes in. Input and output are float always.
enum class Precision { fp32, bf16, fp16 };

/// "openvino", "torch", "auto". Throws UsageError that lists them.
EngineKind parse_engine(std::string_view name);
const char* to_string(EngineKind kind);
/// "fp32", "bf16", "fp16". Throws UsageError that lists them.
Precision parse_precision(std::string_view name);
const char* to_string(Precision precision);

struct EngineOptions {
  std::filesystem::path folder = {};
  EngineKind kind = EngineKind::automatic;
  Precision precision = Precision::fp32;
  int cpu_threads = 0;  ///< of the computation; 0, or more than there are: as many as this process may use
  bool use_gpu = false;
  int gpu_id = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  /// For people: "OpenVINO 2026.4.1 on the CPU, fp32, threads: 2".
  virtual std::string name() const = 0;

  /// `images` holds `batch` pictures as the description's Input says, channel after channel; `scores` gets class_num
  /// numbers for each. Both are best aligned to 64 bytes: they are then used where they lie. Requires batch >= 1.
  /// Throws UsageError or SystemError; the engine remains usable.
  virtual void run(std::span<const float> images, int64_t batch, std::span<float> scores) = 0;
};

/// Loads the network. `description` must fit it. Throws UsageError: no such engine here (and how to get it), a file
/// that is missing, damaged or of another export, a network whose input or output is not as described, no such GPU.
std::unique_ptr<Engine> make_engine(const EngineOptions& options, const bundle::Description& description);

/// The reason why make_engine() would refuse this engine, or nothing when its plugin is there.
std::optional<std::string> why_no_engine(EngineKind kind);

}  // namespace trireme::infer
