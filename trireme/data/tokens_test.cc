#include "trireme/data/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/data/loader.h"
#include "trireme/data/order/sampler_state.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokensTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& content) {
    write_file_atomically(file_, content, {.durable = false});
    return file_;
  }
  template <typename T>
  std::filesystem::path write_numbers(const std::vector<T>& numbers) {
    return write(std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)));
  }
  TempDir folder_;
  std::filesystem::path file_ = folder_.path() / "tokens";
};

std::string text_of(const torch::Tensor& tokens) {
  std::string text;
  for (int64_t i = 0; i < tokens.numel(); ++i) text += static_cast<char>(tokens.flatten()[i].item<int64_t>());
  return text;
}

TEST_F(TokensTest, TheTargetIsTheTextShiftedByOne) {
  const Tokens text(write("abcdefghij"), {.length = 3});
  EXPECT_EQ(text.size(), 3);
  EXPECT_EQ(text.vocabulary(), 256);
  const Sample last = text.get(2);
  EXPECT_EQ(text_of(last.data), "ghi");
  EXPECT_EQ(text_of(last.target), "hij");
  const Batch both = text.batch(std::vector<int64_t>{1, 0});
  EXPECT_EQ(both.data.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(text_of(both.data), "defabc");
  EXPECT_EQ(text_of(both.target), "efgbcd");
}

TEST_F(TokensTest, WithoutATargetTheLastSequenceDoesNotCount) {
  EXPECT_EQ(Tokens(write("abcdef"), {.length = 3}).size(), 1);
  EXPECT_EQ(Tokens(write("abcdefg"), {.length = 3}).size(), 2);
}

TEST_F(TokensTest, NumbersOfTwoAndOfFourBytes) {
  const Tokens small(write_numbers<uint16_t>({0, 50256, 65535, 1}),
                     {.length = 3, .type = TokenType::uint16, .vocabulary = 65536});
  EXPECT_TRUE(small.get(0).data.equal(torch::tensor({0, 50256, 65535}, torch::kInt64)));
  EXPECT_TRUE(small.get(0).target.equal(torch::tensor({50256, 65535, 1}, torch::kInt64)));
  const Tokens large(write_numbers<uint32_t>({7, 100000, 4}),
                     {.length = 1, .type = TokenType::uint32, .vocabulary = 100277});
  EXPECT_EQ(large.tokens(), 3);
  EXPECT_EQ(large.get(1).data.item<int64_t>(), 100000);
}

TEST_F(TokensTest, BytesAboveTheAsciiOnesAreNotNegative) {
  EXPECT_EQ(Tokens(write("\xff\xfe\xfd"), {.length = 1}).get(0).data.item<int64_t>(), 255);
}

TEST_F(TokensTest, RefusesFilesThatAreNotWhatTheOptionsSay) {
  const TokensOptions numbers{.length = 2, .type = TokenType::uint16, .vocabulary = 10};
  EXPECT_THAT(refusal([&] { Tokens{file_}; }), AllOf(HasSubstr(file_.string()), HasSubstr("No such file")));
  EXPECT_THAT(refusal([&] { Tokens{folder_.path()}; }), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal([&] { Tokens{write("")}; }), HasSubstr("is empty"));
  EXPECT_THAT(refusal([&] { Tokens(write("abc"), {.length = 3}); }), AllOf(HasSubstr("3 tokens"), HasSubstr("need 4")));
  EXPECT_THAT(refusal([&] { Tokens(write("abcde"), numbers); }), AllOf(HasSubstr("5 bytes"), HasSubstr("the 2 bytes")));
  EXPECT_THAT(refusal([&] {
                Tokens(write_numbers<uint16_t>({65, 2, 3}), {.length = 1});
              }),
              AllOf(HasSubstr("byte 1 is 0"), HasSubstr("uint16")));
}

TEST_F(TokensTest, RefusesOptionsThatCannotBe) {
  write("abcdefgh");
  EXPECT_THAT(refusal([&] { Tokens(file_, {.length = 0}); }), HasSubstr("sequences of 0 tokens"));
  EXPECT_THAT(refusal([&] { Tokens(file_, {.length = 1, .vocabulary = 257}); }),
              AllOf(HasSubstr("vocabulary is 257"), HasSubstr("1 byte it"), HasSubstr("to 256")));
  EXPECT_THAT(refusal([&] { Tokens(file_, {.length = 1, .type = TokenType::uint16}); }),
              AllOf(HasSubstr("vocabulary is 0"), HasSubstr("to 65536")));
}

TEST_F(TokensTest, ATokenBeyondTheVocabularyIsNamedWithItsPosition) {
  const Tokens tokens(write_numbers<uint16_t>({1, 2, 3, 4, 10}),
                      {.length = 2, .type = TokenType::uint16, .vocabulary = 10});
  EXPECT_NO_THROW(tokens.get(0));
  EXPECT_THAT(refusal([&] { tokens.get(1); }), AllOf(HasSubstr("token 4 is 10"), HasSubstr("0 to 9")));
}

TEST_F(TokensTest, ALoaderDealsOutTheSequencesAndGoesOnWhereItWas) {
  const Tokens text(write("abcdefghijklmnopqrstuvwxy"), {.length = 2});
  const LoaderOptions options{.batch_size = 2, .shuffle = true, .seed = 3};
  std::string seen;
  for (const int rank : {0, 1}) {
    Loader share(text, options, RankInfo{rank, 2});
    for (const auto& [x, y] : share) seen += text_of(x);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, "abcdefghijklmnopqrstuvwx");

  Loader first(text, options, RankInfo{0, 2}), second(text, options, RankInfo{0, 2});
  std::vector<std::string> rest;
  std::string state;
  for (const auto& [x, y] : first) {
    if (!state.empty()) rest.push_back(text_of(x));
    if (state.empty()) state = to_text(first.state());
  }
  second.load_state(parse_sampler_state(state));
  std::vector<std::string> resumed;
  for (const auto& [x, y] : second) resumed.push_back(text_of(x));
  EXPECT_EQ(resumed, rest);
  EXPECT_EQ(rest.size(), 2U);
}

}  // namespace
}  // namespace trireme::data
