#include "trireme/deploy/infer/options.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::infer {
namespace {

PredictorOptions parsed(const std::vector<std::string>& words) {
  PredictorOptions options;
  parse_command_line({.command = "x",
                      .usage = "",
                      .about = "",
                      .notes = "",
                      .operand_advice = "",
                      .options = predictor_options(options)},
                     words);
  check_predictor_options(options);
  return options;
}

TEST(PredictorOptions, AreRead) {
  const PredictorOptions options = parsed(
      {"--use_gpu", "--gpu-id=3", "--engine", "torch", "--precision", "bf16", "--cpu-threads", "2", "--topk", "5"});
  EXPECT_TRUE(options.use_gpu);
  EXPECT_EQ(options.gpu_id, 3);
  EXPECT_EQ(options.engine, EngineKind::torch);
  EXPECT_EQ(options.precision, Precision::bf16);
  EXPECT_EQ(options.cpu_threads, 2);
  EXPECT_EQ(options.topk, 5);
}

TEST(PredictorOptions, AGpuIdNeedsAGpu) {
  EXPECT_THROW(parsed({"--gpu-id", "1"}), UsageError);
  EXPECT_THROW(parsed({"--use-gpu", "False", "--gpu-id", "1"}), UsageError);
  EXPECT_NO_THROW(parsed({"--gpu-id", "0"}));
}

TEST(PredictorOptions, OpenvinoHasNoGpu) {
  EXPECT_THROW(parsed({"--engine", "openvino", "--use-gpu"}), UsageError);
}

}  // namespace
}  // namespace trireme::infer
