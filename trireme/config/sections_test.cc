// The sections of a training configuration: first what they refuse, then what they read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/arch_config.h"
#include "trireme/config/data_config.h"
#include "trireme/config/global_config.h"
#include "trireme/config/loss_config.h"
#include "trireme/config/optimizer_config.h"
#include "trireme/config/test_text.h"
#include "trireme/config/unread.h"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

template <typename Read>
std::string refused_section(const Read& read, const std::string& text) {
  return refusal([&] { read(read_text(text)); });
}

std::string refused_arch(const std::string& text) {
  return refused_section([](const Node& node) { read_arch(node); }, text);
}

TEST(GlobalSection, RefusesValuesThatMakeNoSense) {
  EXPECT_EQ(refused_section(read_global, "device: cpu\nepochs: -3\n"),
            "test.yaml:2: epochs: -3 is too small; expected at least 1");
  EXPECT_THAT(refused_section(read_global, "device: cpu\n"), HasSubstr("test.yaml:1: epochs: missing"));
  EXPECT_EQ(refused_section(read_global, "epochs: 1\ndevice: gpuu\n"),
            "test.yaml:2: device: 'gpuu' is not known; expected cpu, gpu, cuda; did you mean 'gpu'?");
  EXPECT_THAT(refused_section(read_global, "epochs: 1\nimage_shape: [3, 224]\n"), HasSubstr("got 2 numbers"));
  EXPECT_THAT(refused_section(read_global, "epochs: 1\nimage_shape: [3, 0, 224]\n"), HasSubstr("0 is too small"));
  EXPECT_THAT(refused_section(read_global, "epochs: 1\nlog_ranks: all\n"), HasSubstr("expected ranks such as '0,1'"));
  EXPECT_THAT(refused_section(read_global, "epochs: 1\nprint_batch_step: 0\n"),
              HasSubstr("print_batch_step: 0 is too small"));
}

TEST(GlobalSection, HasPaddleClasDefaults) {
  const Global global = read_global(read_text("epochs: 5\ncheckpoints: null\n"));
  EXPECT_EQ(global.epochs, 5);
  EXPECT_EQ(global.checkpoints, "");
  EXPECT_EQ(global.device, Device::gpu);
  EXPECT_EQ(global.output_dir, "./output/");
  EXPECT_EQ(global.image_shape[2], 224);
  EXPECT_THAT(global.log_ranks, ElementsAre(0));
  EXPECT_EQ(global.iter_per_epoch, std::nullopt);
}

TEST(GlobalSection, ReadsDevicesRanksAndIntervals) {
  const Global global = read_global(
      read_text("epochs: 2\ndevice: cuda\nlog_ranks: '0, 3'\niter_per_epoch: 7\nseed: 42\nupdate_freq: 4\n"));
  EXPECT_EQ(global.device, Device::gpu);
  EXPECT_THAT(global.log_ranks, ElementsAre(0, 3));
  EXPECT_EQ(global.iter_per_epoch, 7);
  EXPECT_EQ(global.seed, 42);
  EXPECT_EQ(global.update_freq, 4);
  EXPECT_THAT(read_global(read_text("epochs: 2\nlog_ranks: 1\n")).log_ranks, ElementsAre(1));
}

/// What is logged while a section is read, and read again.
template <typename Read>
std::vector<std::string> warnings_of(const Read& read, const std::string& text) {
  const CaughtLog log;
  const Node node = read_text(text);
  read(node);
  read(node);
  return log.lines();
}

// A key that Trireme knows and does not act upon: a warning when it asks for something else than what happens, once.
TEST(Sections, WarnOnceOfWhatTheyIgnore) {
  const auto global = [](const std::string& key) { return warnings_of(read_global, "epochs: 1\n" + key + "\n"); };
  EXPECT_THAT(global("use_dali: True"), ElementsAre(HasSubstr("test.yaml:2: use_dali: 'True' is ignored: ")));
  EXPECT_THAT(global("to_static: True"), ElementsAre(HasSubstr("to_static: 'True' is ignored: ")));
  EXPECT_THAT(global("uniform_output_enabled: True"), ElementsAre(HasSubstr("uniform_output_enabled: ")));
  EXPECT_THAT(global("use_dali: False\nto_static: False\nuniform_output_enabled: False"), IsEmpty());
  EXPECT_THAT(warnings_of(read_amp, "use_promote: True"), ElementsAre(HasSubstr("use_promote: 'True' is ignored: ")));
  EXPECT_THAT(warnings_of(read_amp, "use_promote: False"), IsEmpty());
  const auto optimizer = [](const std::string& keys) { return warnings_of(read_optimizer, keys); };
  EXPECT_THAT(optimizer("{multi_precision: False, lr: {learning_rate: 1}}"), ElementsAre(HasSubstr("float32 masters")));
  EXPECT_THAT(optimizer("{multi_precision: True, lr: {learning_rate: 1, last_epoch: -1}}"), IsEmpty());
  EXPECT_THAT(optimizer("lr: {learning_rate: 1, last_epoch: 5}"), ElementsAre(HasSubstr("lr.last_epoch: '5' is")));
  const auto loader = [](const std::string& value) {
    return warnings_of(read_data_loader,
                       "dataset: {name: A}\nsampler: {batch_size: 1}\nloader:\n  use_shared_memory: " + value + "\n");
  };
  EXPECT_THAT(loader("False"), ElementsAre(HasSubstr("test.yaml:4: loader.use_shared_memory: 'False' is ignored: ")));
  EXPECT_THAT(loader("True"), IsEmpty());
}

/// Of a distillation with these keys beside its models, whose first one has `own` keys.
std::vector<std::string> distillation_warnings(const std::string& key, const std::string& own = "") {
  return warnings_of([](const Node& node) { read_arch(node); },
                     "name: DistillationModel\nmodels: [T: {name: A" + own + "}, S: {name: B}]\n" + key + "\n");
}

TEST(Sections, WarnOnceOfWhatADistillationIgnores) {
  EXPECT_THAT(distillation_warnings("infer_output_key: features"),
              ElementsAre(HasSubstr("test.yaml:3: infer_output_key: 'features' is ignored")));
  EXPECT_THAT(distillation_warnings("infer_output_key: logits"), IsEmpty());
  EXPECT_THAT(distillation_warnings("pretrained: True"),
              ElementsAre(HasSubstr("test.yaml:3: pretrained: 'True' is ignored: each of the models has its own")));
  EXPECT_THAT(distillation_warnings("pretrained: False", ", pretrained: True"), IsEmpty());
  EXPECT_THAT(distillation_warnings("use_ssld: True"),
              ElementsAre(HasSubstr("test.yaml:3: use_ssld: 'True' is ignored: each of the models has its own")));
  EXPECT_THAT(distillation_warnings("use_ssld: False", ", use_ssld: True"), IsEmpty());
}

// A file inherits the key from its base. By -o it asks for random weights, which a teacher does not get by it.
TEST(Sections, WarnOfADistillationsPretrainedOption) {
  const auto warnings = [](const std::string& teacher) {
    const CaughtLog log;
    read_arch(parse_document(
        "name: DistillationModel\nmodels: [T: {name: A, pretrained: " + teacher + "}]\n" + "pretrained: False\n",
        "test.yaml", {"pretrained=False"}));
    return log.lines();
  };
  EXPECT_THAT(warnings("True"), ElementsAre(HasSubstr("-o pretrained=False: pretrained: 'False' is ignored: each of")));
  EXPECT_THAT(warnings("False"), IsEmpty());
}

// The export of a distillation reads one key for all models, so another value for one of them has no effect.
TEST(Sections, WarnOnceOfAModelsOwnSoftmax) {
  EXPECT_THAT(distillation_warnings("", ", infer_add_softmax: False"),
              ElementsAre("warning: test.yaml:2: models.0.T.infer_add_softmax: 'False' is ignored: the export reads "
                          "infer_add_softmax only"));
  EXPECT_THAT(distillation_warnings("infer_add_softmax: False", ", infer_add_softmax: True"),
              ElementsAre(HasSubstr("models.0.T.infer_add_softmax: 'True' is ignored")));
  EXPECT_THAT(distillation_warnings("infer_add_softmax: False", ", infer_add_softmax: False"), IsEmpty());
}

TEST(AmpSection, RefusesAnotherLevel) {
  EXPECT_THAT(refused_section(read_amp, "level: O3\n"), HasSubstr("level: 'O3' is not known; expected O1, O2"));
  EXPECT_THAT(refused_section(read_amp, "scale_loss: 0\n"), HasSubstr("scale_loss: 0 is too small"));
  EXPECT_THAT(refused_section(read_amp, "dtype: int8\n"), HasSubstr("'int8' is not known"));
}

TEST(AmpSection, IsOnWhenItIsThereAndNotSwitchedOff) {
  EXPECT_FALSE(read_amp(Node()).use_amp);
  EXPECT_TRUE(read_amp(read_text("level: O2\n")).use_amp);
  EXPECT_FALSE(read_amp(read_text("use_amp: False\n")).use_amp);
}

TEST(EmaSection, IsOnWhenItIsThere) {
  EXPECT_FALSE(read_ema(Node()).enabled);
  EXPECT_EQ(read_ema(Node()).decay, 0.9999);
  EXPECT_TRUE(read_ema(read_text("decay: 0.99")).enabled);
  EXPECT_THAT(refused_section(read_ema, "decay: 2"), HasSubstr("decay: 2 is too large; expected at most 1"));
}

TEST(ArchSection, RefusesValuesThatMakeNoSense) {
  EXPECT_THAT(refused_arch("class_num: 10\n"), HasSubstr("name: missing"));
  EXPECT_THAT(refused_arch("name: A\nclass_num: 0\n"), HasSubstr("class_num: 0 is too small"));
  EXPECT_THAT(refused_arch("name: A\npretrained: [1]\n"), HasSubstr("expected True, False or a path, got a list of 1"));
}

TEST(ArchSection, AnyModelMayBeExportedWithoutSoftmax) {
  EXPECT_TRUE(read_arch(read_text("name: A\n")).infer_add_softmax);
  const Arch raw = read_arch(read_text("name: A\ninfer_add_softmax: False\n"));
  EXPECT_FALSE(raw.infer_add_softmax);
  EXPECT_TRUE(raw.arguments.empty());
}

TEST(ArchSection, KeepsFurtherKeysAsArguments) {
  const Arch arch = read_arch(read_text("name: A\npretrained: w.safetensors\ndropout_prob: 0.2\nuse_ssld: True\n"), 7);
  EXPECT_EQ(arch.class_num, 7);
  EXPECT_EQ(arch.pretrained, (Pretrained{.wanted = true, .path = "w.safetensors"}));
  ASSERT_EQ(arch.arguments.size(), 1u);
  EXPECT_EQ(arch.arguments.at("dropout_prob").as<double>(), 0.2);
  EXPECT_FALSE(arch.is_distillation());
}

constexpr const char* kModels =
    "name: DistillationModel\nclass_num: 10\nmodels:\n  - Teacher: {name: A}\n  - Student: {name: B}\n";

TEST(ArchSection, RefusesListsThatDoNotFitTheModels) {
  EXPECT_THAT(refused_arch("name: DistillationModel\n"), HasSubstr("models: missing"));
  EXPECT_EQ(refused_arch(kModels + std::string("freeze_params_list: [True]\n")),
            "test.yaml:6: freeze_params_list: 1 entries for 2 models; expected one for each");
  EXPECT_THAT(refused_arch(kModels + std::string("infer_model_name: Studnt\n")), HasSubstr("did you mean 'Student'?"));
}

// Files give class_num to the models by an alias; an option for it reaches them, but not over an option of their own.
TEST(ArchSection, ClassesByOptionReachTheModels) {
  const std::string text =
      "Arch: {name: DistillationModel, class_num: &n 10, models: [T: {name: A, class_num: *n}, S: {name: B}]}\n";
  const auto classes = [&](const std::vector<std::string>& options) {
    const CaughtLog quiet;
    const Node root = parse_document(text, "test.yaml", options);
    const Arch arch = read_arch(root.section("Arch"));
    EXPECT_EQ(read_arch(root.section("Arch")).models[0].arch.class_num, arch.models[0].arch.class_num);
    return std::pair(arch.models[0].arch.class_num, arch.models[1].arch.class_num);
  };
  EXPECT_EQ(classes({}), std::pair(int64_t{10}, int64_t{10}));
  EXPECT_EQ(classes({"Arch.class_num=5"}), std::pair(int64_t{5}, int64_t{5}));
  EXPECT_EQ(classes({"Arch.class_num=5", "Arch.models.0.T.class_num=7"}), std::pair(int64_t{7}, int64_t{5}));
}

TEST(ArchSection, ReadsTheModelsOfADistillation) {
  const Arch arch = read_arch(read_text(
      kModels +
      std::string(
          "freeze_params_list: [True, False]\npretrained_list: [t.safetensors, null]\ninfer_model_name: Student\n")));
  ASSERT_EQ(arch.models.size(), 2u);
  EXPECT_EQ(arch.models[0].role, "Teacher");
  EXPECT_EQ(arch.models[0].arch.name, "A");
  EXPECT_EQ(arch.models[0].arch.class_num, 10);
  EXPECT_EQ(arch.models[0].arch.pretrained.path, "t.safetensors");
  EXPECT_TRUE(arch.models[0].frozen);
  EXPECT_FALSE(arch.models[1].arch.pretrained.wanted);
  EXPECT_FALSE(arch.models[1].frozen);
  EXPECT_TRUE(arch.arguments.empty());
}

TEST(ArchSection, ADistillationHasNoArguments) {
  const CaughtLog log;
  const Node root = read_text(kModels + std::string("freeze_param_list: [True, False]\ndropout_prob: 0.2\n"));
  EXPECT_TRUE(read_arch(root).arguments.empty());
  warn_unread(root);
  EXPECT_THAT(log.lines(), ElementsAre("warning: test.yaml:6: freeze_param_list: unknown key, ignored; did you mean "
                                       "'freeze_params_list'?",
                                       "warning: test.yaml:7: dropout_prob: unknown key, ignored"));
}

TEST(ArchSection, TheMainModelIsTheOneThatIsEvaluated) {
  EXPECT_EQ(read_arch(read_text("name: A\n")).main().name, "A");
  EXPECT_EQ(read_arch(read_text(kModels)).main().name, "B");
  EXPECT_EQ(read_arch(read_text(kModels + std::string("infer_model_name: Teacher\n"))).main().name, "A");
  const CaughtLog quiet;
  const Arch outer = read_arch(read_text(kModels + std::string("pretrained: True\nuse_ssld: True\n")));
  EXPECT_FALSE(outer.main().pretrained.wanted || outer.pretrained.wanted || outer.use_ssld);
}

TEST(OptimizerSection, RefusesValuesThatMakeNoSense) {
  const auto with_lr = [](const std::string& lr) { return refused_section(read_optimizer, "lr:\n  " + lr + "\n"); };
  EXPECT_EQ(with_lr("learning_rate: fast"), "test.yaml:2: lr.learning_rate: expected a number, got 'fast'");
  EXPECT_THAT(with_lr("{name: Cosine}"), HasSubstr("lr.learning_rate: missing"));
  EXPECT_THAT(with_lr("{name: Cosin, learning_rate: 1}"), HasSubstr("did you mean 'Cosine'?"));
  EXPECT_EQ(with_lr("{name: Piecewise, decay_epochs: [30, 60], values: [1, 2]}"),
            "test.yaml:2: lr.values: 2 values for 2 decay_epochs; expected one value more than epochs (3)");
  EXPECT_THAT(with_lr("{name: Piecewise, decay_epochs: [60, 30], values: [3, 2, 1]}"), HasSubstr("ascending epochs"));
  EXPECT_THAT(with_lr("{learning_rate: -1}"), HasSubstr("lr.learning_rate: -1 is too small; expected at least 0"));
  EXPECT_THAT(refused_section(read_optimizer, "name: Adan\nlr: {learning_rate: 1}"), HasSubstr("did you mean 'Adam'?"));
  EXPECT_THAT(refused_section(read_optimizer, "name: Adam\n"), HasSubstr("lr: missing"));
  EXPECT_THAT(refused_section(read_optimizer, "clip_norm: 0\nlr: {learning_rate: 1}"),
              HasSubstr("clip_norm: 0 is too small"));
  EXPECT_THAT(refused_section(read_optimizer, "regularizer: {name: L3}\nlr: {learning_rate: 1}"),
              HasSubstr("expected L1, L2"));
}

TEST(OptimizerSection, ReadsMomentumWithL2) {
  const Optimizer optimizer =
      read_optimizer(read_text("name: Momentum\nmomentum: 0.8\nclip_norm: 5\nregularizer: {name: 'L2', coeff: 1e-4}\n"
                               "lr: {name: Piecewise, decay_epochs: [30, 60], values: [0.1, 0.01, 0.001]}\n"));
  EXPECT_EQ(optimizer.momentum, 0.8);
  EXPECT_EQ(optimizer.clip_norm, 5);
  EXPECT_EQ(optimizer.regularizer.kind, RegularizerKind::l2);
  EXPECT_EQ(optimizer.regularizer.coeff, 1e-4);
  EXPECT_THAT(optimizer.lr.values, ElementsAre(0.1, 0.01, 0.001));
}

LearningRate rate_of(const std::string& lr) {
  return read_optimizer(read_text("lr: " + lr)).lr;
}

// As PaddleClas' Piecewise does it, whatever the lists say.
TEST(OptimizerSection, ALearningRateReplacesTheListsOfPiecewise) {
  const LearningRate both = rate_of("{name: Piecewise, learning_rate: 0.5, decay_epochs: [3], values: [0.1, 0.01]}");
  EXPECT_EQ(both.learning_rate, 0.5);
  EXPECT_THAT(both.values, IsEmpty());
  EXPECT_THAT(both.decay_epochs, IsEmpty());
  EXPECT_EQ(rate_of("{name: Piecewise, learning_rate: 0.5}").learning_rate, 0.5);
  const LearningRate zero = rate_of("{name: Piecewise, learning_rate: 0, decay_epochs: [3], values: [0.1, 0.01]}");
  EXPECT_EQ(zero.learning_rate, 0.1);
  EXPECT_THAT(zero.values, ElementsAre(0.1, 0.01));
  EXPECT_THAT(refused_section(read_optimizer, "lr: {name: Piecewise}"), HasSubstr("lr.learning_rate: missing"));
}

TEST(OptimizerSection, ReadsPaddleClasOtherNamesAndParts) {
  EXPECT_EQ(rate_of("{name: ConstLR, learning_rate: 1}").name, "Constant");
  EXPECT_EQ(rate_of("{name: Step, learning_rate: 1, step_size: 2.4, gamma: 0.97}").step_size, 2.4);
}

TEST(OptimizerSection, WarnsOfKeysThatTheNamedOneDoesNotHave) {
  const CaughtLog log;
  read_optimizer(read_text("name: SGD\nmomentum: 0.9\nlr:\n  name: Cosine\n  learning_rate: 1\n  gamma: 0.5\n"));
  EXPECT_THAT(
      log.lines(),
      ElementsAre("warning: test.yaml:2: momentum: '0.9' is ignored: it is a key of Momentum, RMSProp, not of SGD",
                  HasSubstr("test.yaml:6: lr.gamma: '0.5' is ignored: it is a key of Step, MultiStepDecay, not")));
}

TEST(OptimizerSection, ReadsAdamW) {
  const Optimizer optimizer = read_optimizer(
      read_text("name: AdamW\nbeta2: 0.95\nweight_decay: 0.05\nno_weight_decay_name: pos_embed  cls_token\n"
                "one_dim_param_no_weight_decay: True\nlr: {name: MultiStep, learning_rate: 1e-3, milestones: [1, 2], "
                "auto_scale: True}\n"));
  EXPECT_EQ(optimizer.weight_decay, 0.05);
  EXPECT_EQ(optimizer.beta2, 0.95);
  EXPECT_THAT(optimizer.no_weight_decay_name, ElementsAre("pos_embed", "cls_token"));
  EXPECT_TRUE(optimizer.one_dim_param_no_weight_decay);
  EXPECT_EQ(optimizer.lr.name, "MultiStepDecay");
  EXPECT_TRUE(optimizer.lr.auto_scale);
}

TEST(OptimizerSection, TakesOneOfTwoDecays) {
  const CaughtLog log;
  const Optimizer optimizer =
      read_optimizer(read_text("weight_decay: 0.1\nregularizer: {coeff: 0.2}\nlr: {learning_rate: 1}\n"));
  EXPECT_EQ(optimizer.weight_decay, 0);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("test.yaml:1: weight_decay: ignored")));
}

std::string loader_with(const std::string& dataset, const std::string& sampler) {
  return "dataset:\n  name: ImageNetDataset\n" + dataset + "sampler: {" + sampler + "}\n";
}

TEST(DataSection, RefusesParametersBesideTheirName) {
  const std::string text = loader_with("  transform_ops:\n    - RandCropImage:\n      size: 224\n", "batch_size: 1");
  EXPECT_THAT(refused_section(read_data_loader, text),
              HasSubstr("test.yaml:4: dataset.transform_ops.0: 'RandCropImage' and 'size' stand side by side"));
}

TEST(DataSection, RefusesValuesThatMakeNoSense) {
  EXPECT_THAT(refused_section(read_data_loader, "dataset: {name: A}"), HasSubstr("sampler: missing"));
  EXPECT_THAT(refused_section(read_data_loader, loader_with("", "batch_size: 0")),
              HasSubstr("sampler.batch_size: 0 is too small"));
  EXPECT_THAT(refused_section(read_data_loader, loader_with("", "name: MultiScaleSampler, first_bs: 3, scales: []")),
              HasSubstr("sampler.scales: expected at least one size"));
  EXPECT_THAT(refused_section(read_data_loader, loader_with("", "name: MultiScaleSampler, first_bs: 3, scales: [0]")),
              HasSubstr("sampler.scales.0: 0 is out of range"));
  EXPECT_THAT(refused_section(read_data_loader, loader_with("  delimiter: ab\n", "batch_size: 1")),
              HasSubstr("got 'ab'"));
  EXPECT_THAT(refused_section(read_data_loader, loader_with("  transform_ops: [{Crop: 3}]\n", "batch_size: 1")),
              HasSubstr("transform_ops.0.Crop: expected parameters, got '3'"));
  EXPECT_THAT(refused_section(read_data_loader, loader_with("  transform_ops: [[Crop]]\n", "batch_size: 1")),
              HasSubstr("expected a name with its parameters, got a list of 1"));
}

TEST(DataSection, ReadsOperatorsWithTheirParameters) {
  const DataLoader loader = read_data_loader(
      read_text(loader_with("  transform_ops:\n    - DecodeImage: {to_rgb: True}\n    - ToCHWImage:\n    - Flip\n"
                            "  batch_transform_ops:\n    - OpSampler:\n        MixupOperator: {alpha: 0.2}\n        "
                            "CutmixOperator: {alpha: 1.0}\n",
                            "batch_size: 64, shuffle: True")));
  ASSERT_EQ(loader.dataset.transform_ops.size(), 3u);
  EXPECT_EQ(loader.dataset.transform_ops[0].name, "DecodeImage");
  EXPECT_TRUE(loader.dataset.transform_ops[0].params.need<bool>("to_rgb"));
  EXPECT_TRUE(loader.dataset.transform_ops[1].params.is_null());
  EXPECT_EQ(loader.dataset.transform_ops[2].name, "Flip");
  const auto mixed = loader.dataset.batch_transform_ops.at(0).params.entries();
  ASSERT_EQ(mixed.size(), 2u);
  EXPECT_EQ(mixed[1].second.need<double>("alpha"), 1.0);
  EXPECT_EQ(loader.sampler.batch_size, 64);
  EXPECT_TRUE(loader.sampler.shuffle);
  EXPECT_EQ(loader.loader.num_workers, 4);
}

TEST(DataSection, ReadsAMultiScaleSampler) {
  const Sampler sampler =
      read_data_loader(read_text(loader_with("", "name: MultiScaleSampler, first_bs: 500, scales: [160, [192, 256]]")))
          .sampler;
  EXPECT_THAT(sampler.scales, ElementsAre(Sampler::Scale{160, 160}, Sampler::Scale{192, 256}));
  EXPECT_EQ(sampler.batch_size, 500);
  EXPECT_EQ(sampler.divided_factor, 32);
  EXPECT_TRUE(sampler.shuffle);
}

TEST(DataSection, SaysThatAMultiScaleSamplerHasAnotherBatchSize) {
  const CaughtLog log;
  read_data_loader(read_text(loader_with("", "name: MultiScaleSampler, first_bs: 5, scales: [160], batch_size: 8")));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("sampler.batch_size: ignored by MultiScaleSampler; set first_bs")));
}

TEST(LossSection, RefusesModelsThatAreNotThere) {
  const Arch plain = read_arch(read_text("name: LeNet\n"));
  const Arch pair = read_arch(read_text(kModels));
  const Node losses = read_text("Train:\n  - DML:\n      model_name_pairs:\n      - [Student, Teacer]\n");
  EXPECT_THAT(refusal([&] { read_losses(losses, pair); }),
              HasSubstr("test.yaml:4: Train.0.DML.model_name_pairs.0.1: 'Teacer' is not known"));
  EXPECT_THAT(refusal([&] { read_losses(losses, plain); }), HasSubstr("but Arch.name is 'LeNet'"));
  EXPECT_THAT(refusal([&] { read_metrics(read_text("Eval: [{T: {model_key: Me}}]"), pair); }),
              HasSubstr("'Me' is not known"));
  EXPECT_THAT(refusal([&] { read_losses(read_text("Train: [{A: {weight: -1}}]"), plain); }), HasSubstr("weight: -1"));
  EXPECT_THAT(refusal([&] { read_metrics(read_text("Eval: [{TopkAcc: {topk: 0}}]"), plain); }), HasSubstr("topk: 0"));
}

TEST(LossSection, ReadsLossesAndMetrics) {
  const Arch pair = read_arch(read_text(kModels));
  const auto losses = read_losses(
      read_text(
          "Train:\n  - CELoss: {weight: 0.5, epsilon: 0.1}\n  - DML:\n      model_name_pairs: [[Student, Teacher]]\n"
          "      model_names: [Student]\nEval:\n  - CELoss:\n"),
      pair);
  ASSERT_EQ(losses.train.size(), 2u);
  EXPECT_EQ(losses.train[0].weight, 0.5);
  EXPECT_EQ(losses.train[0].params.need<double>("epsilon"), 0.1);
  EXPECT_THAT(losses.train[1].model_name_pairs, ElementsAre(Pair("Student", "Teacher")));
  EXPECT_THAT(losses.train[1].model_names, ElementsAre("Student"));
  EXPECT_EQ(losses.eval.at(0).weight, 1);
  const auto metrics = read_metrics(read_text("Train: [TopkAcc]\nEval: [{D: {model_key: Student, topk: 3}}]"), pair);
  EXPECT_THAT(metrics.train.at(0).topk, ElementsAre(1, 5));
  EXPECT_THAT(metrics.eval.at(0).topk, ElementsAre(3));
  EXPECT_EQ(metrics.eval.at(0).model_key, "Student");
}

TEST(LossSection, MetricsReportUnknownKeys) {
  const CaughtLog log;
  const Arch pair = read_arch(read_text(kModels));
  const Node section =
      read_text("Train:\n  - TopkAcc: {topc: 1}\nEval:\n  - DistillationTopkAcc: {model_key: Student, topl: 1}\n");
  read_metrics(section, pair);
  warn_unread(section);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("test.yaml:2: Train.0.TopkAcc.topc: unknown key, ignored; did you"),
                                       HasSubstr("test.yaml:4: Eval.0.DistillationTopkAcc.topl: unknown key, ignored; "
                                                 "did you mean 'topk'?")));
}

}  // namespace
}  // namespace trireme::config
