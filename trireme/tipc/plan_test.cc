#include "trireme/tipc/plan.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/tipc/test_texts.h"

namespace trireme::tipc {
namespace {

using Lines = std::vector<std::string>;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Step> plan(const Lines& lines, Mode mode = Mode::lite_train_lite_infer, const PlanOptions& options = {}) {
  return make_plan(make_case(parse_config(text_of(lines), "x.txt")), mode, options);
}

std::vector<std::string> commands(const std::vector<Step>& steps) {
  std::vector<std::string> all;
  for (const Step& step : steps) all.push_back(shown(step));
  return all;
}

TEST(Plan, ShortFormatOnTheCpu) {
  const auto steps = plan(short_lines());
  const std::string folder = "./test_tipc/output/tiny/lite_train_lite_infer/norm_train_gpus_cpu2";
  EXPECT_THAT(commands(steps),
              ElementsAre("CUDA_VISIBLE_DEVICES=-1 trireme launch -n 2 --log_dir " + folder +
                              "/log ./train -c tiny.yaml --output-dir=" + folder + " --epochs=2 --batch-size=4",
                          "CUDA_VISIBLE_DEVICES=-1 ./eval -c tiny.yaml --pretrained=" + folder + "/latest",
                          "./export -c tiny.yaml --pretrained=" + folder + "/latest --save-inference-dir=" + folder +
                              "/inference",
                          "CUDA_VISIBLE_DEVICES=-1 ./infer --use-gpu=False --batch-size=1 --model-dir=" + folder +
                              "/inference --img-path=./images/demo.png --benchmark=True",
                          "CUDA_VISIBLE_DEVICES=-1 ./infer --use-gpu=False --batch-size=4 --model-dir=" + folder +
                              "/inference --img-path=./images/demo.png --benchmark=True"));
  EXPECT_EQ(steps[3].log, folder + "/cpp_infer_cpu_batchsize_1.log");
  EXPECT_EQ(steps[1].weights->path(), folder + "/latest");
  EXPECT_EQ(steps[4].after, 2u);
  EXPECT_FALSE(steps[0].after);
}

TEST(Plan, LongFormatOverDevicesAndPrecisions) {
  const auto steps = plan(long_lines());
  ASSERT_EQ(steps.size(), 4u * (3 + 6));
  EXPECT_EQ(shown(steps[0]),
            "trireme launch --gpus 0 --log_dir "
            "./test_tipc/output/tiny/lite_train_lite_infer/norm_train_gpus_0_autocast_null_nodes_1/log python3 "
            "tools/train.py -c tiny.yaml -o Global.device=gpu -o "
            "Global.output_dir=./test_tipc/output/tiny/lite_train_lite_infer/norm_train_gpus_0_autocast_null_nodes_1 "
            "-o Global.epochs=2 -o AMP.use_amp=False -o DataLoader.Train.sampler.batch_size=8");
  EXPECT_THAT(shown(steps[9]), HasSubstr("-o AMP.use_amp=True -o AMP.level=O1"));
  EXPECT_THAT(shown(steps[18]), HasSubstr("trireme launch --gpus 0,1 "));
  EXPECT_EQ(steps[27].group, "norm_train_gpus_0,1_autocast_amp_nodes_1");
}

TEST(Plan, TheDeviceFollowsGpuList) {
  const auto steps = plan(with_line(long_lines(), 4, "gpu_list:cpu:2"));
  EXPECT_THAT(shown(steps[0]), HasSubstr("-o Global.device=cpu"));
  EXPECT_EQ(steps[3].name, "infer gpu_precision_fp32_batchsize_1");
  EXPECT_EQ(steps[3].skip, "gpu_list has the CPU only");
  EXPECT_EQ(steps[5].skip, "");
  EXPECT_THAT(shown(plan(with_line(short_lines(), 5, "--use_gpu:True"))[0]), HasSubstr(" --use_gpu=False "));
}

// What Trireme's own cases become with --set gpu_list=… .
Lines own_lines(const std::string& gpu_list) {
  Lines lines = with_line(with_line(long_lines(), 4, "gpu_list:" + gpu_list), 6, "-o Global.auto_cast:null");
  lines = with_line(with_line(lines, 16, "norm_train:trireme train -c a.yaml"), 24, "eval:trireme eval -c a.yaml");
  lines = with_line(with_line(lines, 30, "norm_export:trireme export -c a.yaml"), 40, "inference:trireme infer");
  return with_line(with_line(lines, 43, "--cpu-threads:2"), 46, "--precision:fp32|fp16|bf16");
}

TEST(Plan, OnAGpu) {
  const auto steps = plan(own_lines("0"));
  ASSERT_EQ(steps.size(), 3u + 3 + 3);
  EXPECT_THAT(shown(steps[0]), testing::StartsWith("trireme launch --gpus 0 --log_dir "));
  EXPECT_THAT(shown(steps[0]), HasSubstr(" trireme train -c a.yaml -o Global.device=gpu "));
  EXPECT_THAT(shown(steps[1]), testing::StartsWith("CUDA_VISIBLE_DEVICES=0 trireme eval -c a.yaml "));
  EXPECT_THAT(shown(steps[1]), HasSubstr(" -o Global.device=gpu"));
  EXPECT_THAT(shown(steps[2]), testing::StartsWith("trireme export -c a.yaml "));
  EXPECT_THAT(shown(steps[3]), testing::StartsWith("CUDA_VISIBLE_DEVICES=0 trireme infer --use-gpu=True "
                                                   "--precision=fp32 --batch-size=1 "));
  EXPECT_THAT(shown(steps[6]), testing::StartsWith("CUDA_VISIBLE_DEVICES=-1 trireme infer --use-gpu=False "
                                                   "--cpu-threads=2 --precision=fp32 "));
  std::vector<std::string> logs;
  for (size_t i = 3; i < steps.size(); ++i) logs.push_back(steps[i].log.filename().string());
  EXPECT_THAT(
      logs, ElementsAre("cpp_infer_gpu_precision_fp32_batchsize_1.log", "cpp_infer_gpu_precision_fp16_batchsize_1.log",
                        "cpp_infer_gpu_precision_bf16_batchsize_1.log",
                        "cpp_infer_cpu_threads_2_precision_fp32_batchsize_1.log",
                        "cpp_infer_cpu_threads_2_precision_fp16_batchsize_1.log",
                        "cpp_infer_cpu_threads_2_precision_bf16_batchsize_1.log"));
  for (const Step& step : steps) EXPECT_EQ(step.skip, "") << step.name;
}

TEST(Plan, OnManyGpusASingleProcessTakesTheFirst) {
  const auto steps = plan(own_lines("2,3"));
  EXPECT_THAT(shown(steps[0]), testing::StartsWith("trireme launch --gpus 2,3 "));
  EXPECT_EQ(steps[0].group, "norm_train_gpus_2,3_autocast_null_nodes_1");
  for (const size_t single : {1u, 3u})
    EXPECT_THAT(shown(steps[single]), testing::StartsWith("CUDA_VISIBLE_DEVICES=2 "));
  const auto given = plan(own_lines("cpu:2|3"), Mode::whole_infer);
  EXPECT_THAT(shown(given[1]), testing::StartsWith("CUDA_VISIBLE_DEVICES=3 trireme infer --use-gpu=True "));
}

TEST(Plan, OnTheCpuNoGpuIsAskedFor) {
  const auto steps = plan(own_lines("cpu:2"));
  EXPECT_THAT(shown(steps[0]), testing::StartsWith("CUDA_VISIBLE_DEVICES=-1 trireme launch -n 2 "));
  EXPECT_THAT(shown(steps[1]), HasSubstr("-o Global.device=cpu"));
  for (size_t i = 3; i < 6; ++i) EXPECT_EQ(steps[i].skip, "gpu_list has the CPU only");
  EXPECT_THAT(shown(steps[3]), testing::StartsWith("trireme infer --use-gpu=True"));
}

TEST(Plan, OwnProgramsWriteIntoTheChainsFolderOnly) {
  for (const Mode mode : {Mode::lite_train_lite_infer, Mode::whole_infer, Mode::benchmark_train})
    for (const Step& step : plan(own_lines("cpu:1"), mode)) {
      if (step.kind == StepKind::infer || step.kind == StepKind::eval) continue;  // write nothing
      const std::string key = step.kind == StepKind::train ? "output_dir=" : "save_inference_dir=";
      EXPECT_THAT(shown(step), HasSubstr("-o Global." + key + step.log.parent_path().string())) << step.name;
    }
}

TEST(Plan, ATrainingThatAsksForMixedPrecisionKeepsIt) {
  const auto trained = [](const std::string& trainer, const std::string& command, const std::string& autocast) {
    Lines lines = with_line(own_lines("cpu:1"), 6, "-o Global.auto_cast:" + autocast);
    lines = with_line(with_line(lines, 15, "trainer:" + trainer), 17, trainer + ":" + command);
    return shown(plan(lines)[0]);
  };
  const std::string own = "-o AMP.use_amp=True -o AMP.level=O1";
  for (const char* trainer : {"amp_train", "my_train"})
    EXPECT_THAT(trained(trainer, own, "null"),
                testing::AllOf(HasSubstr(own), testing::Not(HasSubstr("AMP.use_amp=False"))));
  EXPECT_THAT(trained("amp_train", "trireme train -c amp.yaml", "null"), testing::Not(HasSubstr("AMP.")));
  EXPECT_THAT(trained("my_train", "-o Global.seed=1", "null"), HasSubstr("-o AMP.use_amp=False"));
  EXPECT_THAT(trained("amp_train", own, "fp16"), HasSubstr(" -o AMP.use_amp=True -o AMP.level=O2"));
}

TEST(Plan, WithoutAnExportForItATrainingIsNotInferredWith) {
  Lines lines = with_line(with_line(own_lines("cpu:1"), 15, "trainer:distill_train"), 33, "distill_export:null");
  for (const Step& step : plan(lines)) EXPECT_NE(step.skip, "distill_export is null") << "trireme export does it";
  lines = with_line(lines, 30, "norm_export:tools/export.py -c tiny.yaml");
  const auto steps = plan(lines);
  ASSERT_EQ(steps.size(), 3u + 6);
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_EQ(steps[i].skip, i < 2 ? "" : "distill_export is null") << steps[i].name;
}

TEST(Plan, PythonGoesBeforeScriptsOnly) {
  EXPECT_THAT(shown(plan(with_line(short_lines(), 14, "norm_train:./train.py --x"))[0]),
              HasSubstr("/log python3 ./train.py --x "));
  EXPECT_THAT(shown(plan(with_line(short_lines(), 14, "norm_train:./train --x.py"))[0]), HasSubstr("/log ./train "));
}

TEST(Plan, ManyMachines) {
  Lines lines = with_line(short_lines(), 4, "gpu_list:10.0.0.1,10.0.0.2;0");
  lines[12] = "trainer:fleet_train";
  lines[13] = "fleet_train:train.py";
  const auto first = plan(lines, Mode::lite_train_lite_infer, {.nodes = {0}});
  EXPECT_EQ(first[0].group, "fleet_train_gpus_0_nodes_2");
  EXPECT_THAT(shown(first[0]), HasSubstr("trireme launch --ips 10.0.0.1,10.0.0.2 --gpus 0 "));
  const auto second = plan(lines, Mode::lite_train_lite_infer, {.nodes = {1}});
  EXPECT_EQ(shown(second[0]), shown(first[0])) << "the same command on every machine";
  EXPECT_NE(second[0].log, first[0].log) << "the folder may be shared";
  EXPECT_FALSE(second[0].weights) << "trainer 0's are left alone";
  EXPECT_EQ(second[0].skip, "");
  for (size_t i = 1; i < second.size(); ++i) EXPECT_EQ(second[i].skip, "trainer 0 saves");
}

TEST(Plan, EveryCombinationHasItsFolder) {
  const auto groups = [](const std::vector<Step>& steps) {
    std::vector<std::string> names;
    for (const Step& step : steps)
      if (step.kind == StepKind::train) names.push_back(step.group);
    return names;
  };
  Lines lines = with_line(long_lines(), 4, "gpu_list:cpu:1|127.0.0.1;cpu:1|10.0.0.1;cpu:1");
  lines[5] = "-o Global.auto_cast:null";
  const std::string name = "norm_train_gpus_cpu1_autocast_null_nodes_1";
  EXPECT_THAT(groups(plan(lines)), ElementsAre(name, name + "_2", name + "_3"));
  EXPECT_THAT(groups(plan(with_line(short_lines(), 4, "gpu_list:10.0.0.1,10.0.0.2;0|10.0.0.3,10.0.0.4;0"))),
              ElementsAre("norm_train_gpus_0_nodes_2", "norm_train_gpus_0_nodes_2_2"));
  lines = with_line(with_line(long_lines(), 4, "gpu_list:0|1"), 53, "batch_size:8");
  lines[53] = "fp_items:fp32";
  EXPECT_THAT(groups(plan(lines, Mode::benchmark_train)), ElementsAre("bs8_fp32_DP_N1C1", "bs8_fp32_DP_N1C1_2"));
}

TEST(Plan, WholeInfer) {
  const auto steps = plan(short_lines(), Mode::whole_infer);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(shown(steps[0]),
            "./export -c tiny.yaml --pretrained=weights.safetensors "
            "--save-inference-dir=./test_tipc/output/tiny/whole_infer/infer/inference");
  EXPECT_EQ(steps[1].after, 0u);
  Lines lines = with_line(long_lines(), 38, "infer_export:False");
  EXPECT_THAT(shown(plan(lines, Mode::whole_infer)[0]), HasSubstr("-o Global.inference_model_dir=../inference/"));
  EXPECT_EQ(plan(lines, Mode::whole_infer)[0].skip, "") << "a GPU that was asked for must be there";
  lines = with_line(lines, 4, "gpu_list:cpu:2");
  EXPECT_EQ(plan(lines, Mode::whole_infer)[0].skip, "gpu_list has the CPU only");
  EXPECT_THROW(plan(with_line(lines, 37, "infer_model:null"), Mode::whole_infer), UsageError);
}

TEST(Plan, WithoutEvalExportOrInference) {
  EXPECT_EQ(plan(with_line(short_lines(), 17, "eval:null")).size(), 4u);
  EXPECT_EQ(plan(with_line(short_lines(), 22, "norm_export:null")).size(), 2u);
  EXPECT_EQ(plan(with_line(short_lines(), 27, "inference:null")).size(), 3u);
}

TEST(Plan, BenchmarkAddsWhatItIsCountedFrom) {
  const auto steps = plan(with_line(long_lines(), 4, "gpu_list:0,1"), Mode::benchmark_train);
  ASSERT_EQ(steps.size(), 2u * 4);
  EXPECT_EQ(steps[4].group, "bs8_fp32_DP_N1C1");
  EXPECT_THAT(shown(steps[4]), HasSubstr("A=1 B=x:y trireme launch --gpus 0 "));
  EXPECT_THAT(shown(steps[4]), HasSubstr("-o Global.epochs=1 -o AMP.use_amp=False"));
  EXPECT_THAT(shown(steps[6]), HasSubstr("-o AMP.level=O1 -o AMP.dtype=bfloat16"));
  EXPECT_THAT(shown(steps[1]), HasSubstr("-o DataLoader.Train.sampler.batch_size=16"));
  EXPECT_EQ(steps[3].measured->devices, 2);
  for (const Step& step : steps) EXPECT_EQ(step.skip, "");
  EXPECT_EQ(plan(long_lines(), Mode::benchmark_train).size(), 2u * 4) << "0 is in the list already";
  EXPECT_THROW(plan(short_lines(), Mode::benchmark_train), UsageError);
}

TEST(Plan, EachKindOfDeviceIsCountedFromOneOfItsOwn) {
  const auto measured = [](const std::string& gpu_list) {
    std::vector<std::string> all;
    Lines lines = with_line(with_line(long_lines(), 4, "gpu_list:" + gpu_list), 53, "batch_size:8");
    for (const Step& step : plan(with_line(lines, 54, "fp_items:fp32"), Mode::benchmark_train))
      all.push_back(fmt::format("{} {}", step.measured->devices, step.measured->device));
    return all;
  };
  EXPECT_THAT(measured("cpu:1|0,1"), ElementsAre("1 CPU", "2 GPU", "1 GPU"));
  EXPECT_THAT(measured("0|cpu:2|0,1"), ElementsAre("1 GPU", "2 CPU", "2 GPU", "1 CPU"));
  EXPECT_THAT(measured("cpu:2|cpu:4|0,1"), ElementsAre("2 CPU", "4 CPU", "2 GPU", "1 CPU", "1 GPU"));
}

// A case in the short format, which has no line for the precision, with the program and the line for batch sizes.
std::string benchmark_of(const std::string& program, const std::string& batch_line, const std::string& batch_sizes,
                         const std::string& fp_items) {
  Lines lines = with_line(with_line(short_lines(), 14, "norm_train:" + program), 8, batch_line);
  lines.insert(lines.end(),
               {"=====train_benchmark_params=====", "batch_size:" + batch_sizes, "fp_items:" + fp_items, "epoch:1"});
  try {
    return shown(plan(lines, Mode::benchmark_train)[0]);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Plan, WhatIsMeasuredIsWhatItIsCalled) {
  const std::string batch = "--batch-size:8";
  EXPECT_THAT(benchmark_of("./train", batch, "8", "fp32"), HasSubstr("./train --output-dir="));
  EXPECT_THAT(
      benchmark_of("./train", batch, "8", "fp32|bf16"),
      testing::AllOf(HasSubstr("x.txt:35: fp_items: ./train is not told of bf16"), HasSubstr("leave fp32 only")));
  EXPECT_THAT(benchmark_of("./train", "null:null", "8", "fp32"), HasSubstr("./train --output-dir="));
  EXPECT_THAT(benchmark_of("./train", "null:null", "8|16", "fp32"),
              testing::AllOf(HasSubstr("x.txt:34: batch_size: 2 sizes"), HasSubstr("leave one size here")));
  EXPECT_THAT(benchmark_of("trireme train", "null:null", "8|16", "bf16"),
              testing::AllOf(HasSubstr("-o AMP.use_amp=True -o AMP.level=O1 -o AMP.dtype=bfloat16"),
                             HasSubstr("-o DataLoader.Train.sampler.batch_size=8")));
  EXPECT_THAT(benchmark_of("trireme train", batch, "8", "fp32"), HasSubstr("-o AMP.use_amp=False"));
  EXPECT_EQ(plan(with_line(short_lines(), 8, "null:null")).size(), 5u) << "other modes do not measure";
}

TEST(Plan, AProgramIsNotMeasuredTwiceUnderTwoNames) {
  const auto refused = [](const std::string& key, const std::string& fp_items) -> std::string {
    return refusal([&] {
      plan(with_line(with_line(long_lines(), 6, key + ":null"), 54, "fp_items:" + fp_items), Mode::benchmark_train);
    });
  };
  EXPECT_THAT(refused("--amp", "fp16|bf16"),
              testing::AllOf(HasSubstr("x.txt:54: fp_items: fp16 and bf16"), HasSubstr("--amp does not tell")));
  EXPECT_EQ(refused("--amp", "fp32|bf16"), "nothing was thrown") << "the program's own key decides";
  EXPECT_EQ(refused("-o Global.auto_cast", "fp32|fp16|bf16"), "nothing was thrown");
  EXPECT_THAT(refused("null", "bf16"), HasSubstr("tools/train.py is not told of bf16"));
}

TEST(Plan, TheFirstMachineMeasuresOneDevice) {
  const auto lines = with_line(long_lines(), 4, "gpu_list:10.0.0.1,10.0.0.2;0");
  const auto first = plan(lines, Mode::benchmark_train, {.nodes = {0}});
  const auto second = plan(lines, Mode::benchmark_train, {.nodes = {1}});
  ASSERT_EQ(second.size(), 2u * 4);
  for (size_t i = 0; i < second.size(); ++i) {
    EXPECT_EQ(first[i].skip, "");
    EXPECT_EQ(second[i].skip, i < 4 ? "" : "the first machine measures one device") << second[i].group;
    EXPECT_NE(second[i].log, first[i].log) << "the folder may be shared";
  }
}

TEST(Plan, ADeviceOfACpuIsAThread) {
  const auto lines = with_line(long_lines(), 4, "gpu_list:cpu:2");
  EXPECT_THAT(shown(plan(lines, Mode::benchmark_train)[0]),
              HasSubstr("CUDA_VISIBLE_DEVICES=-1 OMP_NUM_THREADS=1 A=1 B=x:y trireme launch -n 2 "));
  EXPECT_THAT(shown(plan(with_line(lines, 57, "flags:OMP_NUM_THREADS=4"), Mode::benchmark_train)[0]),
              HasSubstr("CUDA_VISIBLE_DEVICES=-1 OMP_NUM_THREADS=4 trireme launch "));
}

}  // namespace
}  // namespace trireme::tipc
