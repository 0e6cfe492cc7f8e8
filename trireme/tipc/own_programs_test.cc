#include "trireme/tipc/own_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/tipc/plan.h"
#include "trireme/tipc/test_texts.h"

namespace trireme::tipc {
namespace {

using testing::ElementsAre;

std::vector<std::string> commands(const std::vector<std::string>& lines, const std::string& folder) {
  std::vector<std::string> all;
  const Case test = make_case(parse_config(text_of(lines), "x.txt"));
  for (const Step& step : make_plan(test, Mode::lite_train_lite_infer)) {
    std::string text = show_words(step.command);
    for (size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.replace(at, folder.size(), "F");
    all.push_back(text);
  }
  return all;
}

TEST(OwnPrograms, AreKnownByName) {
  EXPECT_EQ(own_program({"trireme", "train", "-c", "x"}), "train");
  EXPECT_EQ(own_program({"/opt/bin/trireme-infer"}), "infer");
  EXPECT_EQ(own_program({"trireme", "launch"}), "");
  EXPECT_EQ(own_program({"trireme"}), "");
  EXPECT_EQ(own_program({"train.py"}), "");
  EXPECT_EQ(own_program({}), "");
}

TEST(OwnPrograms, KeysOfTheirOwnStay) {
  EXPECT_EQ(key_for({"trireme", "train"}, "train_batch_size", "-o DataLoader.Train.sampler.first_bs"),
            "-o DataLoader.Train.sampler.first_bs");
  EXPECT_EQ(key_for({"trireme", "infer"}, "image", "--img-path"), "--img-path");
  EXPECT_EQ(key_for({"trireme", "train"}, "epochs", "null"), "null");
  EXPECT_EQ(key_for({"./train"}, "epochs", "--epochs"), "--epochs");
  EXPECT_EQ(weights_name({"trireme", "train"}, "latest.pdparams"), "latest");
  EXPECT_EQ(weights_name({"train.py"}, "latest.pdparams"), "latest.pdparams");
}

// The documents' file with other programs, and nothing else changed.
TEST(OwnPrograms, BehindTheKeysOfTheDocuments) {
  auto lines = with_line(short_lines(), 10, "train_model_name:latest.pdparams");
  lines = with_line(lines, 14, "norm_train:trireme train -c a.yaml");
  lines = with_line(lines, 17, "eval:trireme eval -c a.yaml");
  lines = with_line(lines, 22, "norm_export:trireme export -c a.yaml");
  lines = with_line(with_line(lines, 27, "inference:trireme infer"), 29, "--batch-size:1");
  EXPECT_THAT(commands(lines, "./test_tipc/output/tiny/lite_train_lite_infer/norm_train_gpus_cpu2"),
              ElementsAre("trireme launch -n 2 --log_dir F/log trireme train -c a.yaml -o Global.device=cpu -o "
                          "Global.output_dir=F -o Global.epochs=2 -o DataLoader.Train.sampler.batch_size=4",
                          "trireme eval -c a.yaml -o Global.pretrained_model=F/latest -o Global.device=cpu",

                          "trireme export -c a.yaml -o Global.pretrained_model=F/latest -o "
                          "Global.save_inference_dir=F/inference",
                          "trireme infer --use-gpu=False --batch-size=1 --model-dir=F/inference --score-digits=6 "
                          "--img-path=./images/demo.png --benchmark=True"));
}

TEST(OwnPrograms, DigitsThatAreAskedForStay) {
  const auto lines = with_line(short_lines(), 27, "inference:trireme infer --score-digits 3");
  EXPECT_THAT(commands(lines, "x").back(), testing::HasSubstr("trireme infer --score-digits 3 --use-gpu=False"));
  EXPECT_THAT(commands(lines, "x").back(), testing::Not(testing::HasSubstr("--score-digits=6")));
}

// PaddleClas' keys for its inference program.
TEST(OwnPrograms, InferBehindPaddleClasKeys) {
  auto lines = with_line(with_line(long_lines(), 4, "gpu_list:cpu:2"), 6, "-o Global.auto_cast:null");
  lines = with_line(with_line(lines, 40, "inference:trireme infer"), 41, "-o Global.use_gpu:False");
  lines = with_line(with_line(lines, 42, "-o Global.enable_mkldnn:True|False"), 43, "-o Global.cpu_num_threads:6");
  lines = with_line(with_line(lines, 45, "-o Global.use_tensorrt:True|False"), 46, "-o Global.use_fp16:True|False");
  const auto all =
      commands(lines, "./test_tipc/output/tiny/lite_train_lite_infer/norm_train_gpus_cpu2_autocast_null_nodes_1");
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[3],
            "trireme infer --use-gpu=False --cpu-threads=6 --precision=fp16 --batch-size=1 --model-dir=F/inference "
            "--score-digits=6 --image=./dataset/val --benchmark=True");
  EXPECT_THAT(all[4], testing::HasSubstr("--precision=fp32"));
}

}  // namespace
}  // namespace trireme::tipc
