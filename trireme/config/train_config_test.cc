#include "trireme/config/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/test_text.h"
#include "trireme/core/file.h"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kConfig =
    "Global:\n"
    "  epochs: 10\n"
    "Arch: {name: LeNet, class_num: 10}\n"
    "Loss:\n"
    "  Train:\n"
    "    - CELoss: {weight: 1.0, epsilon: 0.1}\n"
    "Optimizer:\n"
    "  lr: {name: Cosine, learning_rate: 0.1, warmup_epoch: 5}\n"
    "DataLoader:\n"
    "  Train:\n"
    "    dataset:\n"
    "      name: FashionMnist\n"
    "      transform_ops:\n"
    "        - NormalizeImage: {scale: 1.0/255.0, scal: 1}\n"
    "    sampler: {batch_size: 8}\n";

std::string refused_config(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return refusal([&] { parse(text, "test.yaml", overrides); });
}

std::string without(const std::string& line) {
  std::string text = kConfig;
  return text.erase(text.find(line), line.size());
}

TEST(TrainConfig, NeedsWhatTrainingNeeds) {
  EXPECT_THAT(refused_config(without("Arch: {name: LeNet, class_num: 10}\n")), HasSubstr("test.yaml:1: Arch: missing"));
  EXPECT_THAT(refused_config(without("    - CELoss: {weight: 1.0, epsilon: 0.1}\n")), HasSubstr("Loss.Train: missing"));
  EXPECT_THAT(refused_config(without("  lr: {name: Cosine, learning_rate: 0.1, warmup_epoch: 5}\n")),
              HasSubstr("Optimizer: empty"));
  EXPECT_EQ(refused_config(kConfig, {"Global.epochs=soon"}),
            "-o Global.epochs=soon: Global.epochs: expected a whole number, got 'soon'");
}

TEST(TrainConfig, AFileWithoutTrainingNeedsNoOptimizer) {
  const TrainConfig config = parse("Global: {epochs: 1}\nArch: {name: LeNet}\n", "test.yaml");
  EXPECT_FALSE(config.train);
  EXPECT_FALSE(config.infer);
}

TEST(TrainConfig, LimitsTheWarmUpOfAShortRun) {
  const CaughtLog log;
  EXPECT_EQ(parse(kConfig, "test.yaml", {"Global.epochs=2"}).optimizer.lr.warmup_epoch, 2);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("test.yaml:8: Optimizer.lr.warmup_epoch: 5 epochs of warm-up, but")));
}

const std::string kPiecewise =
    "Optimizer.lr={name: Piecewise, learning_rate: 0.1, decay_epochs: [30, 60], values: [0.1, 0.01, 0.001]}";

TEST(TrainConfig, SaysWhenALearningRateReplacesOtherListsOfPiecewise) {
  const auto warnings = [](const std::vector<std::string>& options) {
    const CaughtLog log;
    parse(kConfig, "test.yaml", options);
    return log.lines();
  };
  EXPECT_THAT(warnings({kPiecewise}), IsEmpty());  // 10 epochs: nothing falls
  EXPECT_THAT(warnings({kPiecewise, "Global.epochs=90"}), IsEmpty());
  EXPECT_THAT(warnings({kPiecewise, "Global.epochs=91"}), ElementsAre(HasSubstr("Optimizer.lr.values: a list of 3 is "
                                                                                "ignored: learning_rate is given")));
  EXPECT_THAT(warnings({kPiecewise, "Optimizer.lr.learning_rate=0.0001"}),
              ElementsAre(HasSubstr("begins with 0.0001 and falls to a tenth every 30 epochs; "
                                    "-o Optimizer.lr.learning_rate=null uses decay_epochs and values")));
  EXPECT_THAT(warnings({kPiecewise, "Optimizer.lr.learning_rate=null"}), IsEmpty());
}

TEST(TrainConfig, WarnsOfUnknownKeysWhenTheirTurnHasCome) {
  const CaughtLog log;
  const TrainConfig config = parse(kConfig + "Globl: {a: 1}\n", "test.yaml", {"Global.epoch=3"});
  EXPECT_THAT(log.lines(),
              ElementsAre(HasSubstr("has no Global.epoch; added"),
                          "warning: -o Global.epoch=3: Global.epoch: unknown key, ignored; did you mean 'epochs'?",
                          "warning: test.yaml:16: Globl: unknown key, ignored; did you mean 'Global'?"));
  config.train->dataset.transform_ops[0].params.get("scale", 1.0);
  config.loss.train[0].params.get("epsilon", 0.0);
  config.warn_unknown();
  EXPECT_THAT(log.lines().back(),
              HasSubstr("transform_ops.0.NormalizeImage.scal: unknown key, ignored; did you mean 'scale'?"));
  EXPECT_EQ(log.lines().size(), 4u);
}

TEST(TrainConfig, WarnsOfUnknownKeysInAllSectionsItReads) {
  const CaughtLog log;
  parse(kConfig +
            "AMP: {leven: O1}\nInfer: {batchsize: 1, PostProcess: {topc: 1}}\nSlim: {prune: 1}\nMetric: {Trian: 1}\n",
        "test.yaml",
        {"DataLoader.Train.sampler.shufle=True", "DataLoader.Train.dataset.image_rot=x", "Optimizer.lr.gama=1"});
  EXPECT_EQ(log.count("warning: "), 8u);
}

TEST(TrainConfig, TakesClassesFromTheirOlderPlace) {
  const CaughtLog log;
  EXPECT_EQ(parse("Global: {epochs: 1, class_num: 7}\nArch: {name: LeNet}\n", "test.yaml").arch.class_num, 7);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("write it as Arch.class_num")));
}

TEST(TrainConfig, SaysThatThereIsOnePostProcess) {
  const CaughtLog log;
  parse("Global: {epochs: 1}\nArch: {name: LeNet}\nInfer:\n  PostProcess: {name: ThreshOutput, threshold: 0.5}\n",
        "test.yaml");
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("test.yaml:4: Infer.PostProcess.name: 'ThreshOutput' is ignored: ")));
}

TEST(TrainConfig, ReadsInference) {
  const TrainConfig config =
      parse(kConfig +
                "Infer:\n  infer_imgs: a.jpg\n  batch_size: 10\n  transforms:\n    - ToCHWImage:\n"
                "  PostProcess: {name: Topk, topk: 5, class_id_map_file: l.txt}\n",
            "test.yaml");
  EXPECT_EQ(config.infer->transforms.at(0).name, "ToCHWImage");
  EXPECT_EQ(config.infer->post_process.topk, 5);
  EXPECT_EQ(config.infer->post_process.class_id_map_file, "l.txt");
}

// Files of PaddleClas have these keys for its infer.py. On the command line they ask for what does not happen here.
TEST(TrainConfig, WarnsOfPicturesOnTheCommandLine) {
  const std::string text = "Global: {epochs: 1}\nArch: {name: LeNet}\nInfer: {infer_imgs: a.jpg, batch_size: 10}\n";
  const CaughtLog log;
  parse(text, "test.yaml");
  EXPECT_THAT(log.lines(), IsEmpty());
  parse(text, "test.yaml", {"Infer.infer_imgs=b.jpg", "Infer.batch_size=4"});
  EXPECT_THAT(log.lines(),
              ElementsAre("warning: -o Infer.infer_imgs=b.jpg: Infer.infer_imgs: 'b.jpg' is ignored: pictures are "
                          "answered by `trireme infer --image`",
                          HasSubstr("-o Infer.batch_size=4: Infer.batch_size: '4' is ignored: ")));
}

TEST(TrainConfig, ItsTextReadsAsTheSame) {
  const CaughtLog log;
  const TrainConfig config = parse(kConfig, "test.yaml", {"Global.epochs=20", "Global.output_dir='a: b'"});
  const TrainConfig again = parse(config.to_text(), "checkpoint");
  EXPECT_EQ(again.to_text(), config.to_text());
  EXPECT_EQ(again.global.epochs, 20);
  EXPECT_EQ(again.global.output_dir, "a: b");
  EXPECT_EQ(again.train->dataset.transform_ops.at(0).params.need<double>("scale"), 1.0 / 255.0);
}

std::vector<std::filesystem::path> own_configs() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TRIREME_CONFIGS))
    if (entry.path().extension() == ".yaml" && entry.path().parent_path().filename() != "base")
      paths.push_back(entry.path());
  return paths;
}

TEST(TrainConfig, OurOwnFilesLoadWithoutAWarning) {
  const auto paths = own_configs();
  EXPECT_GE(paths.size(), 25u);
  for (const auto& path : paths) {
    const CaughtLog log;
    const TrainConfig config = load(path);
    EXPECT_THAT(log.lines(), IsEmpty()) << path;
    EXPECT_TRUE(config.train && config.eval) << path;
    EXPECT_FALSE(config.train->dataset.transform_ops.empty()) << path;
    EXPECT_TRUE(config.arch.is_distillation() || path.stem().string().starts_with(config.arch.name)) << path;
    EXPECT_EQ(parse(config.to_text(), "again").to_text(), config.to_text()) << path;
  }
}

TEST(TrainConfig, OurOwnFilesSayWhatTheyAre) {
  for (const auto& path : own_configs()) {
    const std::string text = read_file(path).value();
    EXPECT_TRUE(text.starts_with("# ")) << path;
    EXPECT_THAT(text, HasSubstr("trireme train -c configs/classification/" + path.filename().string())) << path;
    EXPECT_THAT(text, HasSubstr("# expected: ")) << path;
  }
}

}  // namespace
}  // namespace trireme::config
