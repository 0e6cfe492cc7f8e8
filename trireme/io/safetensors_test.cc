#include "trireme/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"
#include "trireme/io/format/safetensors_format.h"
#include "trireme/io/module_state.h"
#include "trireme/io/rng_state.h"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Equal in type, shape and each bit.
bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

class Safetensors : public ::testing::Test {
 protected:
  TensorMap through_file(const TensorMap& tensors) {
    save_safetensors(path_, tensors);
    return load_safetensors(path_);
  }
  TempDir folder_;
  fs::path path_ = folder_.path() / "x.safetensors";
};

TEST_F(Safetensors, HoldEveryDtype) {
  const auto bits = torch::randint(0, 2, {3, 8}, torch::kByte) * 37;
  TensorMap tensors;
  for (const auto type :
       {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kFloat8_e4m3fn, torch::kFloat8_e5m2,
        torch::ScalarType::Float8_e8m0fnu, torch::kComplexFloat, torch::kLong, torch::kInt, torch::kShort, torch::kChar,
        torch::kUInt64, torch::kUInt32, torch::kUInt16, torch::kByte})
    tensors.insert(c10::toString(type), bits.view(type));
  tensors.insert("bool", bits.ne(0));
  const TensorMap loaded = through_file(tensors);
  ASSERT_EQ(loaded.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(loaded[i].key(), tensors[i].key()) << "the order stays";
    EXPECT_TRUE(same_bits(loaded[i].value(), tensors[i].value())) << tensors[i].key();
  }
}

TEST_F(Safetensors, HoldEveryLayout) {
  const torch::Tensor x = torch::arange(24).view({1, 2, 3, 4}).to(torch::kFloat);
  const TensorMap tensors{
      {"transposed", x.transpose(1, 3)},    {"channels_last", x.contiguous(torch::MemoryFormat::ChannelsLast)},
      {"slice", x.slice(3, 1, 3)},          {"expanded", torch::ones({1}).expand({5})},
      {"scalar", torch::tensor(3.5)},       {"empty", torch::empty({0, 4})},
      {"none", torch::empty({0})},          {"grad", torch::ones({2}, torch::requires_grad())},
      {"conj", torch::complex(x, x).conj()}};
  const TensorMap loaded = through_file(tensors);
  for (const auto& item : tensors) {
    EXPECT_TRUE(torch::equal(loaded[item.key()], item.value().resolve_conj())) << item.key();
    EXPECT_TRUE(loaded[item.key()].is_contiguous()) << item.key();
    EXPECT_FALSE(loaded[item.key()].requires_grad()) << item.key();
  }
}

TEST_F(Safetensors, OfNothing) {
  EXPECT_EQ(through_file(TensorMap()).size(), 0u);
}

TEST_F(Safetensors, TakeStrangeBoolsAsTrue) {
  write_safetensors(path_, {{"b", "BOOL", {2}, std::string_view("\0\x7f", 2)}});
  EXPECT_TRUE(torch::equal(load_safetensors(path_)["b"], torch::tensor({false, true})));
}

TEST_F(Safetensors, RefuseWhatTheFormatCannotHold) {
  const auto refusal = [&](const torch::Tensor& tensor) {
    return message_of<UsageError>([&] { save_safetensors(path_, {{"w", tensor}}); });
  };
  EXPECT_THAT(refusal(torch::zeros({2}, torch::kComplexDouble)), AllOf(HasSubstr("'w'"), HasSubstr("ComplexDouble")));
  EXPECT_THAT(refusal(torch::eye(2).to_sparse()), HasSubstr("sparse"));
  EXPECT_THAT(refusal({}), HasSubstr("undefined"));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Safetensors, CutOffAnywhereAreRefused) {
  save_safetensors(path_, {{"w", torch::rand({3})}, {"b", torch::rand({2}, torch::kDouble)}});
  const std::string whole = content_of(path_);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    put(path_, whole.substr(0, bytes));
    EXPECT_THROW(load_safetensors(path_), UsageError) << bytes;
  }
  put(path_, whole + "x");
  EXPECT_THROW(load_safetensors(path_), UsageError);
}

TEST_F(Safetensors, NameTheFileThatIsNotThere) {
  EXPECT_THAT(message_of<SystemError>([&] { load_safetensors(path_); }), HasSubstr(path_.string()));
  EXPECT_THROW(load_safetensors(folder_.path()), Error) << "a folder";
  EXPECT_THAT(message_of<SystemError>([&] {
                save_safetensors(folder_.path() / "no/x", {{"a", torch::ones({1})}});
              }),
              HasSubstr("no/x"));
}

struct NormedNet : torch::nn::Module {
  explicit NormedNet(int64_t classes = 3) {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3)));
    bn = register_module("bn", torch::nn::BatchNorm2d(4));
    fc = register_module("fc", torch::nn::Linear(4, classes));
    torch::NoGradGuard no_grad;
    for (auto& tensor : buffers()) tensor.fill_(7);
  }
  torch::nn::Conv2d conv = nullptr;
  torch::nn::BatchNorm2d bn = nullptr;
  torch::nn::Linear fc = nullptr;
};

bool same_tensors(const TensorMap& a, const TensorMap& b) {
  bool same = a.size() == b.size();
  for (const auto& item : a) same = same && b.contains(item.key()) && same_bits(item.value(), b[item.key()]);
  return same;
}

TensorMap without(const TensorMap& tensors, const std::string& name) {
  TensorMap rest;
  for (const auto& item : tensors)
    if (item.key() != name) rest.insert(item.key(), item.value().clone());
  return rest;
}

TEST_F(Safetensors, CarryAModule) {
  const NormedNet source;
  NormedNet target;
  ASSERT_FALSE(same_tensors(state_dict(source), state_dict(target)));
  const LoadReport report = load_into(target, through_file(state_dict(source)));
  EXPECT_TRUE(same_tensors(state_dict(source), state_dict(target)));
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_TRUE(target.fc->weight.requires_grad());
  EXPECT_TRUE(target.fc->weight.is_leaf());
}

TEST(LoadInto, ListsNamesAndChangesNothing) {
  NormedNet net;
  const TensorMap before = without(state_dict(net), "");
  TensorMap other = without(state_dict(NormedNet(5)), "bn.running_var");
  other.insert("head.weight", torch::ones({1}));
  const std::string message = message_of<UsageError>([&] { load_into(net, other, {.from = "other.safetensors"}); });
  EXPECT_THAT(message, AllOf(HasSubstr("other.safetensors"), HasSubstr("1 missing there: bn.running_var"),
                             HasSubstr("1 unknown here: head.weight"),
                             HasSubstr("fc.weight (here Float [3, 4], there Float [5, 4])"), HasSubstr("fc.bias")));
  EXPECT_TRUE(same_tensors(state_dict(net), before));
}

TEST(LoadInto, SkipsWhatDoesNotFitIfAsked) {
  NormedNet net;
  const torch::Tensor fc = net.fc->weight.detach().clone();
  const NormedNet other(5);
  const LoadReport report = load_into(net, state_dict(other), {.skip_mismatch = true});
  EXPECT_THAT(report.skipped, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_TRUE(torch::equal(net.fc->weight, fc));
  EXPECT_TRUE(torch::equal(net.conv->weight, other.conv->weight));
}

TEST(LoadInto, LetsNamesPassIfAsked) {
  NormedNet net;
  TensorMap other = without(state_dict(NormedNet()), "fc.bias");
  other.insert("extra", torch::ones({1}));
  const LoadReport report = load_into(net, other, {.strict = false});
  EXPECT_THAT(report.missing, ElementsAre("fc.bias"));
  EXPECT_THAT(report.unexpected, ElementsAre("extra"));
  EXPECT_TRUE(torch::equal(net.fc->weight, other["fc.weight"]));
  other.insert("conv.bias2", torch::ones({1}));
  EXPECT_THROW(load_into(net, state_dict(NormedNet(9)), {.strict = false}), UsageError) << "shapes still count";
}

TEST(LoadInto, DoesWithoutCountedBatches) {
  NormedNet net;
  load_into(net, without(state_dict(NormedNet()), "bn.num_batches_tracked"));
  EXPECT_EQ(net.bn->num_batches_tracked.item<int64_t>(), 7) << "it stays";
  torch::nn::Linear linear(4, 3);
  load_into(
      *linear,
      {{"weight", torch::ones({3, 4})}, {"bias", torch::ones({3})}, {"norm.num_batches_tracked", torch::tensor(3)}});
  EXPECT_EQ(linear->weight.sum().item<float>(), 12);
}

TEST(LoadInto, ConvertsFloatsButNoCounters) {
  torch::nn::Linear half(4, 3);
  half->to(torch::kHalf);
  load_into(*half, {{"weight", torch::full({3, 4}, 1.5)}, {"bias", torch::zeros({3}, torch::kDouble)}});
  EXPECT_EQ(half->weight.scalar_type(), torch::kHalf);
  EXPECT_EQ(half->weight.sum().item<float>(), 18);
  EXPECT_THAT(message_of<UsageError>([&] {
                load_into(*half, {{"weight", torch::ones({3, 4}, torch::kLong)}, {"bias", torch::zeros({3})}});
              }),
              HasSubstr("weight (here Half [3, 4], there Long [3, 4])"));
}

TEST(LoadInto, ShortensLongLists) {
  NormedNet net;
  TensorMap other = without(state_dict(NormedNet()), "");
  for (int i = 0; i < 100; ++i) other.insert("extra" + std::to_string(i), torch::ones({1}));
  const std::string message = message_of<UsageError>([&] { load_into(net, other); });
  EXPECT_THAT(message, AllOf(HasSubstr("100 unknown here"), HasSubstr("and 90 more"), Not(HasSubstr("extra50"))));
}

TEST_F(Safetensors, CarryTheRandomNumbers) {
  torch::randn({3});  // half a pair of normal numbers is kept inside: it must come along
  const TensorMap state = through_file(rng_state());
  const torch::Tensor expected = torch::cat({torch::randn({5}), torch::rand({5})});
  torch::manual_seed(1234);
  set_rng_state(state);
  EXPECT_TRUE(torch::equal(torch::cat({torch::randn({5}), torch::rand({5})}), expected));
}

TEST(RngState, MustBeOne) {
  const TensorMap before = rng_state();
  EXPECT_THAT(message_of<UsageError>([] { set_rng_state(TensorMap()); }), HasSubstr("no 'cpu'"));
  EXPECT_THAT(message_of<UsageError>([] {
                set_rng_state({{"cpu", torch::zeros({3}, torch::kByte)}});
              }),
              HasSubstr("3 bytes"));
  set_rng_state({{"cpu", before["cpu"]}, {"cuda:77", torch::zeros({16}, torch::kByte)}});
  EXPECT_TRUE(torch::equal(rng_state()["cpu"], before["cpu"]));
}

}  // namespace
}  // namespace trireme::io
