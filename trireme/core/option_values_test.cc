#include "trireme/core/option_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

template <typename Read>
std::string refusal(Read read, const std::string& text) {
  return trireme::refusal([&] { read(Given{"--option", text}); });
}

TEST(OptionValues, AreShownAsTheyWereWritten) {
  EXPECT_EQ((Given{"--gpus", "0,1"}.shown()), "--gpus 0,1");
  EXPECT_EQ((Given{"PADDLE_DEVICES", "0,1"}.shown()), "PADDLE_DEVICES=0,1");
  EXPECT_EQ((Given{"--gpus", ""}.shown()), "--gpus \"\"");
  EXPECT_EQ((Given{"--gpus", "\x1b[2J"}.shown()), "--gpus \\x1b[2J");
}

TEST(OptionValues, Numbers) {
  EXPECT_EQ(int_value({"-n", "7"}, 1, 7), 7);
  for (const char* text : {"", "0", "8", "+3", "3 ", "3.0", "three"})
    EXPECT_THAT(refusal([](const Given& given) { int_value(given, 1, 7); }, text), HasSubstr("from 1 to 7")) << text;
}

TEST(OptionValues, Truth) {
  for (const char* text : {"True", "true", "1", "yes", "ON"}) EXPECT_TRUE(bool_value({"--b", text})) << text;
  for (const char* text : {"False", "false", "0", "no", "Off"}) EXPECT_FALSE(bool_value({"--b", text})) << text;
  for (const char* text : {"", "2", "maybe", "truee"})
    EXPECT_THAT(refusal(bool_value, text), HasSubstr("true or false"));
}

TEST(OptionValues, Times) {
  EXPECT_EQ(duration_value({"-t", "0.5"}), milliseconds(500));
  EXPECT_EQ(duration_value({"-t", "2m"}), milliseconds(120'000));
  EXPECT_EQ(duration_value({"-t", "720h"}), milliseconds(2'592'000'000));
  for (const char* text : {"", "-1", "1 s", "1d", "nan", "inf", "721h", "1e3"})
    EXPECT_THAT(refusal(duration_value, text), AllOf(HasSubstr("500ms"), HasSubstr("30 days"))) << text;
}

TEST(OptionValues, Bytes) {
  EXPECT_EQ(bytes_value({"-b", "1000000"}), 1'000'000u);
  EXPECT_EQ(bytes_value({"-b", "1.5M"}), 1'572'864u);
  EXPECT_EQ(bytes_value({"-b", "512k"}), 524'288u);
  EXPECT_EQ(bytes_value({"-b", "1024G"}), size_t{1} << 40);
  for (const char* text : {"", "0", "0.5", "-1", "16X", "1025G", "M"})
    EXPECT_THAT(refusal(bytes_value, text), AllOf(HasSubstr("1 byte"), HasSubstr("16M"))) << text;
}

}  // namespace
}  // namespace trireme
