#include "trireme/core/base64.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace trireme {
namespace {

TEST(Base64, KnownPairs) {
  const std::pair<std::string, std::string> pairs[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"\xff\xfe\xfd", "//79"},
                                                       {"\xfb\xff\xbf", "+/+/"}};
  for (const auto& [bytes, text] : pairs) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text).bytes, bytes);
    EXPECT_TRUE(base64_decode(text).ok()) << text;
  }
}

TEST(Base64, SaysWhatIsWrongAndWhere) {
  const std::pair<std::string, std::string> pairs[] = {
      {"Z", "1 characters are not a multiple of four"},
      {"Zg=", "3 characters are not a multiple of four"},
      {"Zm9v\nZm9v", "9 characters are not a multiple of four"},
      {"\xff\xff\xff\xff", "character 1 is not Base64"},
      {"Zm9*", "character 4 is not Base64"},
      {"Zm9vZm9vZ-9v", "character 10 is not Base64"},
      {"Zm9vZ-==", "character 6 is not Base64"},
      {"Zm9v\n\n==", "character 5 is not Base64"},
      {"Z===", "character 2 is not Base64"},
      {"====", "character 1 is not Base64"},
      {"=m9v", "character 1 is not Base64"},
      {"Zg==Zg==", "character 3 is not Base64"},
  };
  for (const auto& [text, error] : pairs) {
    const Base64Decoded decoded = base64_decode(text);
    EXPECT_EQ(decoded.error, error) << text;
    EXPECT_FALSE(decoded.ok());
    EXPECT_EQ(decoded.bytes, "") << text;
  }
}

TEST(Base64, EveryByteIsADigitOrRefused) {
  int digits = 0;
  for (int value = 0; value < 256; ++value) {
    const std::string text{static_cast<char>(value), 'A', 'A', 'A'};
    digits += base64_decode(text).ok();
  }
  EXPECT_EQ(digits, 64);
}

TEST(Base64, AnyBytesComeBack) {
  std::mt19937 random(5);
  for (size_t size = 0; size < 200; ++size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_EQ(base64_decode(base64_encode(bytes)).bytes, bytes) << size;
  }
}

}  // namespace
}  // namespace trireme
