#include "trireme/io/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"
#include "trireme/io/module_state.h"

namespace trireme::io {
namespace {

using namespace torch::optim;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(4, 8));
    second = register_module("second", torch::nn::Linear(8, 2));
    unused = register_module("unused", torch::nn::Linear(1, 1));
  }
  torch::nn::Linear first = nullptr, second = nullptr, unused = nullptr;
};

void train(Net& net, Optimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    const torch::Tensor x = torch::sin(torch::arange(12) * (step + 1)).view({3, 4});
    optimizer.zero_grad();
    net.second->forward(torch::relu(net.first->forward(x))).square().sum().backward();
    optimizer.step();
  }
}

std::vector<torch::Tensor> forward_order(Net& net) {
  return net.parameters();
}
std::vector<torch::Tensor> backward_order(Net& net) {
  auto parameters = net.parameters();
  return {parameters.rbegin(), parameters.rend()};
}

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<torch::Tensor>)>;
struct Case {
  const char* name;
  Make make;
};

template <typename O, typename Options>
Make maker(Options options) {
  return
      [options](std::vector<torch::Tensor> parameters) { return std::make_unique<O>(std::move(parameters), options); };
}

const Case kCases[] = {
    {"PlainSgd", maker<SGD>(SGDOptions(0.01))},
    {"Momentum", maker<SGD>(SGDOptions(0.01).momentum(0.9).nesterov(true).weight_decay(1e-3))},
    {"Adam", maker<Adam>(AdamOptions(0.01))},
    {"AmsgradAdam", maker<Adam>(AdamOptions(0.01).amsgrad(true).betas({0.8, 0.95}))},
    {"AdamW", maker<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
    {"Rmsprop", maker<RMSprop>(RMSpropOptions(0.01))},
    {"CenteredRmsprop", maker<RMSprop>(RMSpropOptions(0.01).centered(true).momentum(0.5))},
    {"Adagrad", maker<Adagrad>(AdagradOptions(0.01).lr_decay(0.1))},
};

class EachOptimizer : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, EachOptimizer, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

bool equal(const TensorMap& a, const TensorMap& b) {
  bool same = a.size() == b.size();
  for (const auto& item : a) same = same && b.contains(item.key()) && torch::equal(item.value(), b[item.key()]);
  return same;
}

TEST_P(EachOptimizer, GoesOnBitForBitWithParametersInAnotherOrder) {
  const TempDir folder;
  Net unbroken;
  auto optimizer = GetParam().make(forward_order(unbroken));
  train(unbroken, *optimizer, 0, 5);
  optimizer->param_groups()[0].options().set_lr(0.005);  // as a schedule does
  save_safetensors(folder.path() / "net", state_dict(unbroken));
  save_safetensors(folder.path() / "opt", optimizer_state(*optimizer, unbroken.named_parameters()));
  train(unbroken, *optimizer, 5, 10);

  Net resumed;
  auto other = GetParam().make(backward_order(resumed));
  train(resumed, *other, 3, 4);  // what it had before must not matter
  load_into(resumed, load_safetensors(folder.path() / "net"));
  load_optimizer_state(*other, resumed.named_parameters(), load_safetensors(folder.path() / "opt"));
  EXPECT_EQ(other->param_groups()[0].options().get_lr(), 0.005);
  train(resumed, *other, 5, 10);
  EXPECT_TRUE(equal(state_dict(unbroken), state_dict(resumed)));
  EXPECT_TRUE(equal(optimizer_state(*optimizer, unbroken.named_parameters()),
                    optimizer_state(*other, resumed.named_parameters())));
}

TEST(OptimizerState, BeforeTheFirstStep) {
  Net net;
  Adam fresh(net.parameters(), AdamOptions(0.5));
  const TensorMap state = optimizer_state(fresh, net.named_parameters());
  Adam other(net.parameters(), AdamOptions(0.1));
  train(net, other, 0, 2);
  load_optimizer_state(other, net.named_parameters(), state);
  EXPECT_TRUE(other.state().empty());
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.5);
}

TEST(OptimizerState, IsNamedByParameter) {
  Net net;
  Adam adam(net.parameters(), AdamOptions(0.1));
  train(net, adam, 0, 3);
  const TensorMap state = optimizer_state(adam, net.named_parameters());
  EXPECT_EQ(state["adam/state/first.weight/exp_avg"].sizes(), net.first->weight.sizes());
  EXPECT_EQ(state["adam/state/first.weight/step"].item<int64_t>(), 3);
  EXPECT_EQ(state["adam/groups/0/lr"].item<double>(), 0.1);
  EXPECT_FALSE(state.contains("adam/state/unused.weight/step")) << "it never had a gradient";
}

TEST(OptimizerState, KeepsTheOptionsOfEachGroup) {
  Net net;
  const auto make = [&](double lr) {
    return std::make_unique<SGD>(
        std::vector<OptimizerParamGroup>{{net.first->parameters(), std::make_unique<SGDOptions>(lr)},
                                         {net.second->parameters(), std::make_unique<SGDOptions>(2 * lr)}},
        SGDOptions(1));
  };
  auto two = make(0.25);
  auto other = make(0.1);
  load_optimizer_state(*other, net.named_parameters(), optimizer_state(*two, net.named_parameters()));
  EXPECT_EQ(other->param_groups()[0].options().get_lr(), 0.25);
  EXPECT_EQ(other->param_groups()[1].options().get_lr(), 0.5);
  SGD one(net.parameters(), SGDOptions(1));
  EXPECT_THAT(message_of<UsageError>([&] {
                load_optimizer_state(one, net.named_parameters(), optimizer_state(*two, net.named_parameters()));
              }),
              AllOf(HasSubstr("'first.weight'"), HasSubstr("in one group")));
}

TEST(OptimizerState, OptionsFollowTheParametersIntoOtherGroups) {
  Net net;
  const auto group = [](torch::nn::Module& module, double lr) {
    return OptimizerParamGroup(module.parameters(), std::make_unique<SGDOptions>(lr));
  };
  SGD two({group(*net.first, 0.25), group(*net.second, 0.5)}, SGDOptions(1));
  const TensorMap state = optimizer_state(two, net.named_parameters());
  SGD turned({group(*net.second, 1), group(*net.first, 1)}, SGDOptions(1));
  load_optimizer_state(turned, net.named_parameters(), state);
  EXPECT_EQ(turned.param_groups()[0].options().get_lr(), 0.5);
  EXPECT_EQ(turned.param_groups()[1].options().get_lr(), 0.25);
  SGD some(net.second->parameters(), SGDOptions(1));
  load_optimizer_state(some, net.named_parameters(), state);
  EXPECT_EQ(some.param_groups()[0].options().get_lr(), 0.5);
}

TEST(OptimizerState, OfOlderFilesGoesByTheNumbersOfTheGroups) {
  Net net;
  SGD two({{net.first->parameters(), std::make_unique<SGDOptions>(0.25)},
           {net.second->parameters(), std::make_unique<SGDOptions>(0.5)}},
          SGDOptions(1));
  TensorMap old;
  for (const auto& item : optimizer_state(two, net.named_parameters()))
    if (item.key().find("group_of") == std::string::npos) old.insert(item.key(), item.value());
  SGD one(net.parameters(), SGDOptions(1));
  EXPECT_THAT(message_of<UsageError>([&] { load_optimizer_state(one, net.named_parameters(), old); }),
              AllOf(HasSubstr("2 groups"), HasSubstr("has 1")));
  load_optimizer_state(two, net.named_parameters(), old);
}

TEST(OptimizerState, GroupsOfSeveralOptimizersBecomeOnesOfTheirOptions) {
  Net net;
  SGD first(net.first->parameters(), SGDOptions(0.25)), second(net.second->parameters(), SGDOptions(0.25));
  const auto joined = [&] {
    TensorMap all = with_group_numbers_from(0, optimizer_state(first, net.named_parameters()));
    for (const auto& item : with_group_numbers_from(100, optimizer_state(second, net.named_parameters())))
      if (!all.contains(item.key())) all.insert(item.key(), item.value());
    return with_equal_groups_merged(all);
  };
  EXPECT_EQ(joined()["sgd/groups"].item<int64_t>(), 1);
  second.param_groups()[0].options().set_lr(0.5);
  const TensorMap apart = joined();
  EXPECT_EQ(apart["sgd/groups"].item<int64_t>(), 2);
  EXPECT_EQ(apart["sgd/group_of/second.weight"].item<int64_t>(), 1);
  EXPECT_EQ(apart["sgd/groups/1/lr"].item<double>(), 0.5);
}

class WrongState : public ::testing::Test {
 protected:
  WrongState() {
    train(net_, adam_, 0, 2);
    for (const auto& item : optimizer_state(adam_, net_.named_parameters()))
      state_.insert(item.key(), item.value().clone());
  }
  std::string refusal(const TensorMap& state) {
    const TensorMap before = optimizer_state(adam_, net_.named_parameters());
    const std::string message =
        message_of<UsageError>([&] { load_optimizer_state(adam_, net_.named_parameters(), state); });
    EXPECT_TRUE(equal(optimizer_state(adam_, net_.named_parameters()), before)) << "nothing has changed";
    return message;
  }
  Net net_;
  Adam adam_{net_.parameters(), AdamOptions(0.1)};
  TensorMap state_;
};

TEST_F(WrongState, OfAnotherOptimizer) {
  SGD sgd(net_.parameters(), SGDOptions(0.1).momentum(0.9));
  EXPECT_THAT(refusal(optimizer_state(sgd, net_.named_parameters())), AllOf(HasSubstr("'sgd/"), HasSubstr("'adam'")));
}

TEST_F(WrongState, OfAnotherModel) {
  state_.insert("adam/state/head.weight/step", torch::tensor(int64_t{1}));
  EXPECT_THAT(refusal(state_), AllOf(HasSubstr("1 parameters"), HasSubstr("'head.weight'")));
}

TEST_F(WrongState, OfAnotherShape) {
  state_["adam/state/first.bias/exp_avg"] = torch::ones({3});
  EXPECT_THAT(refusal(state_), AllOf(HasSubstr("first.bias/exp_avg"), HasSubstr("[3]"), HasSubstr("[8]")));
}

TEST_F(WrongState, WithAPartMissingOrOfAnotherType) {
  TensorMap no_step = state_;
  no_step.erase("adam/state/first.bias/step");
  EXPECT_THAT(refusal(no_step), HasSubstr("no 'adam/state/first.bias/step'"));
  state_["adam/groups/0/lr"] = torch::ones({2});
  EXPECT_THAT(refusal(state_), AllOf(HasSubstr("Float [2]"), HasSubstr("one Double")));
  EXPECT_THAT(refusal(TensorMap()), HasSubstr("no 'adam/groups'"));
}

TEST_F(WrongState, WithoutNames) {
  EXPECT_THAT(message_of<UsageError>([&] { optimizer_state(adam_, net_.first->named_parameters()); }),
              HasSubstr("has no name"));
}

TEST(OptimizerState, OfAnUnknownKindIsRefused) {
  Net net;
  const LBFGS lbfgs(net.parameters(), LBFGSOptions(1));
  EXPECT_THAT(message_of<UsageError>([&] { optimizer_state(lbfgs, net.named_parameters()); }),
              HasSubstr("not SGD, Adam"));
}

}  // namespace
}  // namespace trireme::io
