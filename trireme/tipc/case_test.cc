#include "trireme/tipc/case.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/tipc/test_texts.h"

namespace trireme::tipc {
namespace {

using Lines = std::vector<std::string>;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

Case understand(const Lines& lines) {
  return make_case(parse_config(text_of(lines), "x.txt"));
}

std::string refused_case(const Lines& lines) {
  return refusal([&] { understand(lines); });
}

TEST(Case, NumbersByMode) {
  const Case test = understand(short_lines());
  EXPECT_EQ(test.epochs.at(Mode::lite_train_lite_infer), "2");
  EXPECT_EQ(test.epochs.at(Mode::lite_train_whole_infer), "2");  // the same training
  EXPECT_EQ(test.epochs.at(Mode::whole_train_whole_infer), "90");
  EXPECT_THROW(test.epochs.at(Mode::benchmark_train), UsageError);
  EXPECT_EQ(understand(long_lines()).batch_size.at(Mode::whole_train_whole_infer), "8");
  EXPECT_EQ(understand(with_line(short_lines(), 6, "null:null")).epochs.at(Mode::lite_train_lite_infer), "");
}

TEST(Case, BadNumbersAreNamed) {
  for (const char* value : {"lite_train_lite_infer=x", "lite_train_lite_infer=0", "lite_train_lite_infer=", "0", "-1"})
    EXPECT_THAT(refused_case(with_line(short_lines(), 6, std::string("--epochs:") + value)),
                AllOf(HasSubstr("x.txt:6: --epochs"), HasSubstr("whole number")))
        << value;
  EXPECT_THAT(refused_case(with_line(short_lines(), 6, "--epochs:lite_train_lite_infr=2")),
              AllOf(HasSubstr("x.txt:6: --epochs"), HasSubstr("did you mean lite_train_lite_infer?")));
  EXPECT_THAT(refused_case(with_line(short_lines(), 8, "--batch-size:whole_infer=1|whole_infer=2")),
              HasSubstr("twice"));
  for (const char* value : {"2|3", "lite_train_lite_infer=2|3", "3|lite_train_lite_infer=2"})
    EXPECT_THAT(refused_case(with_line(short_lines(), 6, std::string("--epochs:") + value)),
                AllOf(HasSubstr("x.txt:6: --epochs: '"), HasSubstr("for every mode")))
        << value;
}

TEST(Case, NothingOutsideTheOutputFolderIsNamedToBeRemoved) {
  for (const char* name : {"/home", "..", "../other", "latest/../../other", "./latest"})
    EXPECT_THAT(refused_case(with_line(short_lines(), 10, std::string("train_model_name:") + name)),
                AllOf(HasSubstr("x.txt:10:"), HasSubstr(name), HasSubstr("inside the output folder")));
  EXPECT_EQ(understand(with_line(short_lines(), 10, "train_model_name:LeNet/latest")).train_model_name, "LeNet/latest");
}

TEST(Case, Trainers) {
  const Case test = understand(with_line(long_lines(), 15, "trainer:normal_train|distill_train|to_static_train"));
  ASSERT_EQ(test.trainers.size(), 3u);
  EXPECT_THAT(test.trainers[0].command, ElementsAre("tools/train.py", "-c", "tiny.yaml"));
  EXPECT_THAT(test.trainers[1].command, ElementsAre("tools/train.py", "-c", "ssld.yaml"));
  EXPECT_THAT(test.trainers[1].export_command, ElementsAre("tools/export.py", "-c", "ssld.yaml"));
  EXPECT_THAT(test.trainers[2].command,
              ElementsAre("tools/train.py", "-c", "tiny.yaml", "-o", "Global.to_static=True"));
}

TEST(Case, WithoutALineOfItsOwnTheStudentIsExportedByTrireme) {
  Lines lines = with_line(with_line(long_lines(), 15, "trainer:distill_train"), 33, "distill_export:null");
  EXPECT_EQ(understand(lines).trainers[0].no_export, "distill_export is null") << "what it makes of it is not known";
  lines = with_line(lines, 30, "norm_export:trireme export -c a.yaml");
  EXPECT_THAT(understand(lines).trainers[0].export_command, ElementsAre("trireme", "export", "-c", "a.yaml"));
  EXPECT_EQ(understand(lines).trainers[0].no_export, "");
  EXPECT_TRUE(understand(with_line(lines, 30, "norm_export:null")).trainers[0].export_command.empty());
}

TEST(Case, TrainersThatCannotBe) {
  EXPECT_THAT(refused_case(with_line(long_lines(), 15, "trainer:amp_train")),
              AllOf(HasSubstr("x.txt:15: trainer"), HasSubstr("'amp_train' has no line"), HasSubstr("norm_train")));
  EXPECT_THAT(refused_case(with_line(long_lines(), 15, "trainer:pact_train")),
              AllOf(HasSubstr("x.txt:17: pact_train"), HasSubstr("no command")));
  EXPECT_THAT(refused_case(with_line(short_lines(), 13, "trainer:norm_train|normal_train")), HasSubstr("twice"));
  EXPECT_THAT(refused_case(with_line(short_lines(), 14, "norm_train:-c x")), HasSubstr("program is missing"));
  EXPECT_THAT(refused_case(with_line(short_lines(), 14, "norm_train:sh -c 'exit")), HasSubstr("quote"));
}

TEST(Case, EmptyAlternativesAreNamed) {
  const std::vector<std::pair<size_t, std::string>> bad = {
      {4, "gpu_list:0||1"},         {4, "gpu_list:|0"},        {4, "gpu_list:"},
      {5, "-o Global.device:cpu|"}, {6, "-o Global.amp:|amp"}, {7, "-o Global.epochs:1|"},
      {15, "trainer:norm_train|"},  {41, "-o use_gpu:True|"},  {43, "-o cpu_threads:1||6"},
      {44, "-o batch_size:|"},      {46, "-o precision:fp32|"}};
  for (const auto& [line, text] : bad)
    EXPECT_THAT(refused_case(with_line(long_lines(), line, text)),
                AllOf(HasSubstr(fmt::format("x.txt:{}: {}", line, text.substr(0, text.find(':')))),
                      AnyOf(HasSubstr("empty alternative"), HasSubstr("has no value"))))
        << text;
}

TEST(Case, ValuesThatCannotBe) {
  EXPECT_THAT(refused_case(with_line(long_lines(), 4, "gpu_list:0|zero")),
              AllOf(HasSubstr("x.txt:4: gpu_list"), HasSubstr("'zero'")));
  EXPECT_THAT(refused_case(with_line(long_lines(), 5, "-o Global.device:tpu")), HasSubstr("x.txt:5: -o Global.device"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 6, "-o Global.auto_cast:int8")), HasSubstr("x.txt:6:"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 41, "-o Global.use_gpu:maybe")), HasSubstr("x.txt:41:"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 2, "model_name:../../etc")), HasSubstr("x.txt:2: model_name"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 2, "model_name:null")), HasSubstr("needs a value"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 54, "fp_items:fp8")),
              AllOf(HasSubstr("x.txt:54: fp_items"), HasSubstr("'fp8'")));
  EXPECT_THAT(refused_case(with_line(long_lines(), 53, "batch_size:0")), HasSubstr("x.txt:53: batch_size"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 55, "epochs:1")), HasSubstr("did you mean epoch?"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 55, "model_type:norm_train")), HasSubstr("has no epoch"));
  EXPECT_THAT(refused_case(with_line(long_lines(), 57, "flags:A")), HasSubstr("NAME=VALUE"));
}

TEST(Case, InferenceRefusesWhatItsProgramWould) {
  for (const char* value : {"/../..", "0", "x", "5000", "1|1", "1|/../.."})
    EXPECT_THAT(refused_case(with_line(long_lines(), 44, std::string("-o Global.batch_size:") + value)),
                HasSubstr("x.txt:44: -o Global.batch_size: '"))
        << value;
  EXPECT_THAT(refused_case(with_line(long_lines(), 43, "-o Global.cpu_num_threads:many")), HasSubstr("x.txt:43:"));
  const auto own = with_line(long_lines(), 40, "inference:trireme infer");
  EXPECT_THAT(refused_case(with_line(own, 46, "-o Global.precision:fp32|int8")),
              AllOf(HasSubstr("x.txt:46: "), HasSubstr("'int8' is not one of fp32, bf16, fp16")));
  EXPECT_THAT(refused_case(with_line(own, 46, "-o Global.use_fp16:True|fp16")), HasSubstr("'fp16' means fp16"));
  EXPECT_EQ(refused_case(with_line(long_lines(), 46, "-o Global.precision:fp32|int8")), "nothing was thrown");
}

TEST(Case, WhatBecomesAFileNameLeadsNowhereElse) {
  for (const auto& [line, text] : std::vector<std::pair<size_t, std::string>>{
           {42, "-o Global.enable_mkldnn:../../x"}, {45, "-o Global.use_tensorrt:a/b"}, {46, "-o Global.precision:.."}})
    EXPECT_THAT(refused_case(with_line(long_lines(), line, text)), HasSubstr(fmt::format("x.txt:{}: ", line)));
  EXPECT_THAT(refused_case(with_line(with_line(short_lines(), 13, "trainer:../a_train"), 14, "../a_train:./train")),
              AllOf(HasSubstr("x.txt:13: trainer"), HasSubstr("file's name")));
}

TEST(Case, NothingIsThereTwice) {
  const std::vector<std::pair<size_t, std::string>> bad = {
      {4, "gpu_list:0|0"},        {4, "gpu_list:-1|cpu:1"},           {6, "-o Global.auto_cast:amp|amp"},
      {37, "infer_model:a|b|a"},  {41, "-o Global.use_gpu:True|gpu"}, {43, "-o Global.cpu_num_threads:1|6|1"},
      {44, "-o Global.bs:4|1|4"}, {46, "-o precision:fp32|fp32"},     {53, "batch_size:8|8"},
      {54, "fp_items:fp32|fp32"}};
  for (const auto& [line, text] : bad)
    EXPECT_THAT(refused_case(with_line(long_lines(), line, text)),
                AllOf(HasSubstr(fmt::format("x.txt:{}: {}", line, text.substr(0, text.find(':')))),
                      testing::AnyOf(HasSubstr("twice"), HasSubstr("there already"))))
        << text;
  EXPECT_EQ(refused_case(with_line(short_lines(), 5, "use-gpu:True|True")), "nothing was thrown")
      << "as the documents have it";
}

TEST(Case, TooManyCombinations) {
  std::string list = "-o Global.batch_size:1";
  for (int i = 2; i < 200; ++i) list += fmt::format("|{}", i);
  std::string threads = "-o Global.cpu_num_threads:1";
  for (int i = 2; i < 200; ++i) threads += fmt::format("|{}", i);
  EXPECT_THAT(refused_case(with_line(with_line(long_lines(), 44, list), 43, threads)), HasSubstr("combinations"));
}

TEST(Case, InferenceOverItsAlternatives) {
  const Case test = understand(long_lines());
  std::vector<std::string> names;
  for (const InferVariant& variant : test.infer_variants) names.push_back(variant.name);
  EXPECT_THAT(names,
              ElementsAre("gpu_precision_fp32_batchsize_1", "gpu_precision_bf16_batchsize_1",
                          "cpu_threads_1_precision_fp32_batchsize_1", "cpu_threads_1_precision_bf16_batchsize_1",
                          "cpu_threads_6_precision_fp32_batchsize_1", "cpu_threads_6_precision_bf16_batchsize_1"));
  EXPECT_EQ(show_words(test.infer_variants[3].words),
            "-o Global.use_gpu=False -o Global.cpu_num_threads=1 -o Global.precision=bf16 -o Global.batch_size=1");
  EXPECT_EQ(show_words(test.train_infer_words), "-o Global.infer_imgs=./dataset/val -o Global.benchmark=True");
  EXPECT_EQ(show_words(test.infer_words), "-o Global.infer_imgs=../val -o Global.benchmark=True");
}

TEST(Case, WhereThePicturesGo) {
  EXPECT_EQ(understand(short_lines()).data_folder, "./lite_data");
  EXPECT_EQ(understand(long_lines()).data_folder, "dataset");
  EXPECT_EQ(understand(with_line(long_lines(), 12, "train_infer_img_dir:./a/b/val/")).data_folder, "a/b");
  EXPECT_EQ(understand(with_line(long_lines(), 12, "train_infer_img_dir:val")).data_folder, ".");
}

TEST(Case, GivenModels) {
  EXPECT_THAT(understand(long_lines()).given_models[0].export_command,
              ElementsAre("tools/export.py", "-c", "tiny.yaml"));
  EXPECT_TRUE(understand(with_line(long_lines(), 38, "infer_export:null")).given_models[0].export_command.empty());
  EXPECT_TRUE(understand(with_line(long_lines(), 37, "infer_model:null")).given_models.empty());
}

TEST(Mode, NamesBothWays) {
  for (const std::string& name : mode_names()) EXPECT_EQ(to_string(parse_mode(name, "")), name);
  EXPECT_THROW(parse_mode("lite", "MODE"), UsageError);
}

}  // namespace
}  // namespace trireme::tipc
