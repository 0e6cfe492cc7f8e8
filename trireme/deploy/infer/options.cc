#include "trireme/deploy/infer/options.h"

#include "trireme/core/error.h"

namespace trireme::infer {
namespace {

constexpr int kMaxThreads = 4096;
constexpr int kMaxGpu = 1023;
constexpr int kMaxClasses = 1 << 20;

}  // namespace

std::vector<Option> predictor_options(PredictorOptions& options) {
  const auto engine = [](const Given& given) { return parse_engine(given.text); };
  const auto precision = [](const Given& given) { return parse_precision(given.text); };
  return {{{"--engine"},
           "NAME",
           "openvino (inference.onnx, CPU) or torch (inference.pt); default auto: openvino on the CPU, torch on a GPU",
           into(options.engine, engine)},
          {{"--use-gpu"},
           "True|False",
           "compute on a GPU (default: False)",
           into(options.use_gpu, bool_value),
           Takes::boolean},
          {{"--gpu-id"}, "N", "which GPU (default: 0)", into(options.gpu_id, int_in(0, kMaxGpu))},
          {{"--precision"},
           "NAME",
           "fp32, bf16 or fp16: what the network computes in (default: fp32)",
           into(options.precision, precision)},
          {{"--cpu-threads"},
           "N",
           "threads of the engine (default: one for each core)",
           into(options.cpu_threads, int_in(0, kMaxThreads))},
          {{"--topk"},
           "K",
           "classes in an answer (default: as the model says)",
           into(options.topk, int_in(1, kMaxClasses))}};
}

void check_predictor_options(const PredictorOptions& options) {
  if (options.use_gpu && options.engine == EngineKind::openvino)
    throw UsageError("--engine openvino computes on the CPU; with --use-gpu True take --engine torch");
  if (!options.use_gpu && options.gpu_id != 0)
    throw UsageError("--gpu-id {} has no effect on the CPU; add --use-gpu True or leave it out", options.gpu_id);
}

}  // namespace trireme::infer
