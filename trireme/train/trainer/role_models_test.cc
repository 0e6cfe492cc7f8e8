#include "trireme/train/trainer/role_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/config/document.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/models/models.h"
#include "trireme/nn/distillation_losses.h"
#include "trireme/nn/losses.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/trainer/batches.h"
#include "trireme/train/trainer/evaluator.h"
#include "trireme/train/trainer/make_loss.h"
#include "trireme/train/trainer/make_optimizer.h"
#include "trireme/train/trainer/make_step.h"
#include "trireme/train/trainer/memory.h"
#include "trireme/train/trainer/ready_network.h"

namespace trireme::trainer {
namespace {

constexpr int64_t kClasses = 4;

models::ClassifierPtr small_net() {
  return models::create("PPLCNet_x0_25", {.class_num = kClasses});
}

std::vector<torch::Tensor> state(const torch::nn::Module& module) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& tensor : module.parameters()) all.push_back(tensor.detach().clone());
  for (const torch::Tensor& tensor : module.buffers()) all.push_back(tensor.clone());
  return all;
}

bool same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const torch::Tensor& x, const torch::Tensor& y) { return x.equal(y); });
}

Losses losses(const std::string& text) {
  const config::Node root = config::parse_document(text, "f.yaml");
  const config::Arch arch = config::read_arch(root.section("Arch"));
  return make_losses(config::read_losses(root.section("Loss"), arch).train, root);
}

constexpr const char* kArch =
    "Arch: {name: DistillationModel, models: [Teacher: {name: LeNet}, Student: {name: LeNet}]}\n";

// Nothing of a frozen teacher changes, its batch-norm statistics included, and it is no part of what is trained.
TEST(RoleModels, TeachersStayAsTheyAre) {
  torch::manual_seed(1);
  const auto teacher = small_net(), student = small_net();
  const RoleModels net({{"Teacher", teacher, true}, {"Student", student}}, "Student");
  net.to(torch::kCPU);
  net.set_training(true);
  EXPECT_FALSE(teacher->is_training());
  EXPECT_EQ(net.trained().get(), student.get());
  const auto before = state(*teacher), student_before = state(*student);
  const Losses dml =
      losses(std::string(kArch) + "Loss: {Train: [DistillationDMLLoss: {model_name_pairs: [[Student, Teacher]]}]}");
  EXPECT_FALSE(dml.need_labels());
  torch::optim::SGD optimizer(net.trained()->parameters(), 0.1);
  const Outputs outputs = net.forward(torch::randn({2, 3, 32, 32}));
  EXPECT_FALSE(outputs.of("Teacher").requires_grad());
  dml(outputs, {}).total.backward();
  optimizer.step();
  EXPECT_TRUE(same(state(*teacher), before));
  EXPECT_FALSE(same(state(*student), student_before));
  for (const torch::Tensor& parameter : teacher->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(RoleModels, NothingToTrain) {
  EXPECT_THROW(RoleModels({{"Teacher", small_net(), true}}, "Teacher"), UsageError);
}

TEST(RoleModels, WeightsLieChannelsLast) {
  const RoleModels net({{"", small_net()}}, "");
  net.to(torch::kCPU);
  for (const torch::Tensor& weight : net.trained()->parameters()) {
    EXPECT_TRUE(weight.requires_grad());
    if (weight.dim() != 4) continue;
    const torch::Tensor expected = torch::empty_like(weight, torch::MemoryFormat::ChannelsLast);
    EXPECT_EQ(weight.strides(), expected.strides());
  }
}

TEST(RoleModels, OnAGpuConvolutionsAreChosenByTrial) {
  choose_convolutions(torch::kCUDA);
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  env::set("FLAGS_cudnn_exhaustive_search", "0");
  choose_convolutions(torch::kCUDA);
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  env::set("FLAGS_cudnn_exhaustive_search", std::nullopt);
}

// Unlabelled samples come last; a loss of labels sees the first ones only, one of two models sees all.
TEST(Losses, SeeTheSamplesTheyCanUse) {
  const Losses both = losses(std::string(kArch) + R"(
Loss:
  Train:
    - DistillationGTCELoss: {model_names: [Student], weight: 0.5}
    - DistillationDistanceLoss: {model_name_pairs: [[Student, Teacher]], mode: l1}
)");
  EXPECT_TRUE(both.need_labels());
  EXPECT_THAT(both.names(), testing::ElementsAre("DistillationGTCELoss", "DistillationDistanceLoss"));
  Outputs outputs("Student");
  const torch::Tensor s = torch::randn({6, kClasses}), t = torch::randn({6, kClasses});
  outputs.add("Student", s);
  outputs.add("Teacher", t);
  const torch::Tensor target = torch::tensor({0, 3}, torch::kLong);
  const Losses::Values values = both(outputs, {target, 2});
  EXPECT_NEAR(values.each[0].item<double>(), 0.5 * nn::ce_loss(s.narrow(0, 0, 2), target).item<double>(), 1e-6);
  EXPECT_NEAR(values.each[1].item<double>(), (s - t).abs().mean().item<double>(), 1e-6);
  EXPECT_NEAR(values.total.item<double>(), (values.each[0] + values.each[1]).item<double>(), 1e-6);
}

TEST(Losses, DkdTakesTheTeachersChoiceForALabel) {
  const auto one = [](const char* taught) {
    return losses(std::string(kArch) + "Loss: {Train: [DistillationDKDLoss: {model_name_pairs: [[Student, Teacher]], " +
                  "use_target_as_gt: " + taught + "}]}");
  };
  Outputs outputs("Student");
  const torch::Tensor s = torch::randn({6, kClasses}), t = torch::randn({6, kClasses});
  outputs.add("Student", s);
  outputs.add("Teacher", t);
  const torch::Tensor target = (t.argmax(1) + 1).remainder(kClasses);
  EXPECT_FALSE(one("True").need_labels());
  EXPECT_TRUE(one("False").need_labels());
  EXPECT_TRUE(one("True")(outputs, {target, 6}).total.equal(nn::dkd_loss(s, t, t.argmax(1))));
  EXPECT_TRUE(one("False")(outputs, {target, 6}).total.equal(nn::dkd_loss(s, t, target)));
}

TEST(Losses, RefuseWithThePlace) {
  const auto refusal = [](const std::string& loss) -> std::string {
    try {
      losses(std::string(kArch) + "Loss:\n  Train:\n    - " + loss);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("CELos: {weight: 1}"),
              testing::AllOf(testing::HasSubstr("f.yaml:4"), testing::HasSubstr("did you mean 'CELoss'")));
  EXPECT_THAT(refusal("DistillationDMLLoss: {weight: 1}"), testing::HasSubstr("model_name_pairs"));
  EXPECT_THAT(refusal("CELoss: {epsilon: 2}"), testing::HasSubstr("epsilon"));
  EXPECT_EQ(refusal("DistillationDistanceLoss: {model_name_pairs: [[Student, Teacher]], key: logits}"), "");
  EXPECT_THAT(refusal("DistillationDistanceLoss: {model_name_pairs: [[Student, Teacher]], key: blocks5}"),
              testing::HasSubstr("f.yaml:4: Loss.Train.0.DistillationDistanceLoss.key: 'blocks5' is not supported"));
}

// A student's DMLLoss with model_names would be taken of other models than its author thinks.
TEST(Losses, WarnOfModelsThatTheyDoNotLookAt) {
  const auto warnings = [](const std::string& loss) {
    const CaughtLog log;
    losses(std::string(kArch) + "Loss:\n  Train:\n    - " + loss);
    return log.lines();
  };
  EXPECT_THAT(warnings("DistillationGTCELoss: {model_name_pairs: [[Student, Teacher]]}"),
              testing::ElementsAre(testing::AllOf(
                  testing::HasSubstr("f.yaml:4: Loss.Train.0.DistillationGTCELoss.model_name_pairs: "),
                  testing::HasSubstr("is ignored: DistillationGTCELoss is taken of each model by itself"))));
  EXPECT_THAT(warnings("DistillationDMLLoss: {model_name_pairs: [[Student, Teacher]], model_names: [Student]}"),
              testing::ElementsAre(
                  testing::HasSubstr("model_names: a list of 1 is ignored: DistillationDMLLoss compares two")));
  EXPECT_THAT(warnings("DistillationDMLLoss: {model_name_pairs: [[Student, Teacher]]}"), testing::IsEmpty());
}

config::TrainConfig training(const std::string& arch, const std::string& optimizer) {
  return config::parse("Global: {epochs: 1}\nArch: {name: " + arch + "}\nOptimizer: " + optimizer + "\n", "f.yaml");
}

TEST(MakeOptimizer, NormsDecayOnlyInResNetsAndWithAdamW) {
  const std::string momentum = "{name: Momentum, lr: {learning_rate: 0.1}, regularizer: {name: L2, coeff: 0.5}}";
  EXPECT_FALSE(no_decay(training("ResNet50", momentum)).norm);
  EXPECT_TRUE(no_decay(training("PPLCNet_x1_0", momentum)).norm);
  const std::string adamw =
      "{name: AdamW, lr: {learning_rate: 0.1}, weight_decay: 0.05, no_weight_decay_name: norm bias}";
  EXPECT_FALSE(no_decay(training("PPLCNet_x1_0", adamw)).norm);
  EXPECT_THAT(no_decay(training("PPLCNet_x1_0", adamw)).names, testing::ElementsAre("norm", "bias"));
}

TEST(MakeOptimizer, DecaysAsTheFileSays) {
  const auto config = training("LeNet", "{name: SGD, lr: {learning_rate: 0.1}, regularizer: {name: L2, coeff: 0.5}}");
  const torch::Tensor decayed = torch::ones({2}, torch::requires_grad()),
                      kept = torch::ones({2}, torch::requires_grad());
  const auto optimizer = make_optimizer(config.optimizer, {{{decayed}, {}}, {{kept}, 0.0}});
  (decayed.sum() * 0 + kept.sum() * 0).backward();
  optimizer->step();
  EXPECT_TRUE(decayed.allclose(torch::full({2}, 0.95)));
  EXPECT_TRUE(kept.equal(torch::ones({2})));
  EXPECT_THROW(make_optimizer(training("LeNet", "{name: Lamb, lr: {learning_rate: 0.1}}").optimizer, {}), UsageError);
}

// Alone, and as the student of a distillation, whose names have its role before them.
TEST(MakeOptimizer, StagesHaveTheRatesOfLrMultList) {
  const auto config = training("PPLCNet_x0_25", "{name: SGD, lr: {learning_rate: 0.1}}");
  const auto small = [] {
    return models::create("PPLCNet_x0_25", {.class_num = kClasses, .lr_mult_list = {0, 1, 1, 1, 1, 0.5}});
  };
  const RoleModels alone({{"", small()}}, ""), both({{"One", small()}, {"Two", small()}}, "Two");
  for (const RoleModels* net : {&alone, &both}) {
    const auto optimizer = make_optimizer(config, *net->trained());
    std::map<std::string, torch::Tensor> old;
    for (const auto& item : net->trained()->named_parameters()) {
      old[item.key()] = item.value().detach().clone();
      item.value().mutable_grad() = torch::ones_like(item.value());
    }
    optim::set_lr(*optimizer, 0.2);
    optimizer->step();
    for (const auto& item : net->trained()->named_parameters()) {
      const auto within = [&](const char* part) { return item.key().find(part) != std::string::npos; };
      const double factor = within("conv1.conv.") || within("conv1.bn.") ? 0 : within("blocks6.") ? 0.5 : 1;
      EXPECT_TRUE(item.value().allclose(old[item.key()] - 0.2 * factor)) << item.key();
    }
  }
}

TEST(MakeOptimizer, RmsPropTakesTheFilesNumbers) {
  const auto config = training("LeNet", "{name: RMSProp, momentum: 0.9, rho: 0.8, lr: {learning_rate: 0.1}}");
  const torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  const auto optimizer = make_optimizer(config.optimizer, {{{weight}, {}}});
  const auto& options = static_cast<const torch::optim::RMSpropOptions&>(optimizer->param_groups()[0].options());
  EXPECT_EQ(options.alpha(), 0.8);
  EXPECT_EQ(options.momentum(), 0.9);
  EXPECT_EQ(options.eps(), 1e-6);
}

TEST(MakeStep, L1PullsWeightsToZeroAndSparesNorms) {
  const auto config =
      training("PPLCNet_x0_25", "{name: SGD, lr: {learning_rate: 0.1}, regularizer: {name: L1, coeff: 0.5}}");
  const auto model = small_net();
  const RoleModels net({{"", model}}, "");
  const auto optimizer = make_optimizer(config, *net.trained());
  train::Step step = make_step(config, net, train::Ranks(torch::kCPU), *optimizer);
  const auto before = model->named_parameters();
  std::map<std::string, torch::Tensor> old;
  torch::Tensor nothing = torch::zeros({});
  for (const auto& item : before) {
    old[item.key()] = item.value().detach().clone();
    nothing = nothing + item.value().sum() * 0;
  }
  step([&] { return nothing; });
  EXPECT_EQ(step.update(), train::Update::done);
  for (const auto& item : before) {
    const torch::Tensor& was = old[item.key()];
    const bool norm = item.key().find("bn") != std::string::npos;
    EXPECT_TRUE(item.value().allclose(norm ? was : was - 0.05 * was.sign())) << item.key();
  }
}

TEST(Memory, WhatCannotBeIsToldBefore) {
  const auto config = config::parse(R"(
Global: {device: cpu, epochs: 1}
Arch: {name: LeNet}
DataLoader:
  Eval:
    dataset: {name: Synthetic, samples: 16000000}
    sampler: {name: DistributedBatchSampler, batch_size: 16000000}
)",
                                    "f.yaml");
  try {
    require_memory(*config.eval, {.rows = 16000000, .sample_bytes = 602112});
    ADD_FAILURE() << "this machine has 9 TB?";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("f.yaml:7: DataLoader.Eval.sampler.batch_size: "),
                                             testing::HasSubstr("16000000 images"), testing::HasSubstr("8972.2 GiB")));
  }
  require_memory(*config.eval, {.rows = 64, .sample_bytes = 602112});
}

TEST(Memory, TorchsOwnWordsAreUnderstood) {
  try {
    torch::empty({int64_t{1} << 50});
    ADD_FAILURE() << "this machine has 4 PB?";
  } catch (const std::exception& error) {
    EXPECT_TRUE(out_of_memory(error)) << error.what();
  }
  EXPECT_FALSE(out_of_memory(std::runtime_error("shapes differ")));
}

// Saved behind the last batch of a pass, with epochs that are longer than one: nothing is left of that pass.
TEST(Batches, GoOnBehindTheLastBatchOfAPass) {
  const auto config = config::parse(R"(
Global: {device: cpu, epochs: 1, iter_per_epoch: 3, image_shape: [1, 28, 28]}
Arch: {name: LeNet, class_num: 10}
Loss: {Train: [CELoss: {weight: 1.0}]}
Optimizer: {name: SGD, lr: {name: Constant, learning_rate: 0.1}}
DataLoader:
  Train:
    dataset: {name: Synthetic, samples: 8}
    sampler: {name: DistributedBatchSampler, batch_size: 4}
    loader: {num_workers: 0}
)",
                                    "f.yaml");
  Batches first(config, true, {}, torch::kCPU), second(config, true, {}, torch::kCPU);
  first.start(0);
  while (first.loader().state().consumed() < first.loader().state().samples) first.next();
  second.loader().load_state(first.loader().state());
  EXPECT_EQ(second.go_on(2), 2);
  EXPECT_TRUE(second.next().target.equal(first.next().target));
}

}  // namespace
}  // namespace trireme::trainer
