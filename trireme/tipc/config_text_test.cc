#include "trireme/tipc/config_text.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/tipc/test_texts.h"

namespace trireme::tipc {
namespace {

using Lines = std::vector<std::string>;
using testing::AllOf;
using testing::HasSubstr;

ConfigText parse(const Lines& lines) {
  return parse_config(text_of(lines), "x.txt");
}

std::string parse_refusal(const std::string& text) {
  return trireme::refusal([&] { parse_config(text, "x.txt"); });
}

std::string parse_refusal(const Lines& lines) {
  return parse_refusal(text_of(lines));
}

TEST(ConfigText, BothFormats) {
  const ConfigText small = parse(short_lines()), large = parse(long_lines());
  EXPECT_EQ(small.at("epochs").value, "lite_train_lite_infer=2|whole_train_whole_infer=90");
  EXPECT_EQ(small.at("infer_batch_size").value, "1|4");
  EXPECT_EQ(small.at("export_weights").key, "--pretrained");
  EXPECT_EQ(small.at("export_weights").value, "");
  EXPECT_EQ(small.find("precision"), nullptr);
  EXPECT_EQ(large.at("precision").line, 46u);
  EXPECT_EQ(large.at("train_batch_size").key, "-o DataLoader.Train.sampler.batch_size");
  ASSERT_EQ(large.benchmark.size(), 5u);
  EXPECT_EQ(large.benchmark[2].value, "1");
}

TEST(ConfigText, AValueMayHaveColons) {
  EXPECT_EQ(parse(long_lines()).at("inference_dir").value, "https://example.org/a:b.tar");
  EXPECT_EQ(parse(short_lines()).at("gpu_list").value, "cpu:2");
}

TEST(ConfigText, WhatIsHandled) {
  std::string crlf;
  for (const std::string& line : short_lines()) crlf += line + "\r\n";
  EXPECT_EQ(parse_config(crlf, "x.txt").at("benchmark").value, "True");
  EXPECT_EQ(parse_config("\xef\xbb\xbf" + text_of(short_lines()), "x.txt").at("model_name").value, "tiny");
  EXPECT_EQ(parse_config(text_of(short_lines()) + "\n  \n", "x.txt").at("model_name").value, "tiny");
  EXPECT_EQ(parse_config(join(short_lines(), "\n"), "x.txt").at("benchmark").value, "True");  // no newline at the end
  EXPECT_EQ(parse(with_line(long_lines(), 36, "##")).at("inference_dir").value, "null");
  EXPECT_EQ(parse(with_line(long_lines(), 36, "## \t")).at("inference_dir").value, "null");
  for (const char* filler : {"## ", "##\t", " ##", "#", "####  "})
    EXPECT_EQ(parse(with_line(short_lines(), 12, filler)).at("model_name").value, "tiny") << filler;
}

TEST(ConfigText, EveryMissingLineIsNoticedWhereItIs) {
  for (const Lines& whole : {short_lines(), long_lines()})
    for (size_t missing = 1; missing <= (whole.size() > 40 ? 51 : 32); ++missing) {
      Lines lines = whole;
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(missing) - 1);
      const std::string text = parse_refusal(lines);
      // Among lines that look alike (six trainers) it is noticed where they end.
      const size_t noticed = std::stoul(text.substr(text.find(':') + 1));
      EXPECT_GE(noticed + 1, missing) << text;
      EXPECT_LE(noticed, missing + 5) << text;
      EXPECT_THAT(text, HasSubstr("expected")) << missing;
    }
}

TEST(ConfigText, EveryBlankLineIsNamed) {
  for (const Lines& whole : {short_lines(), long_lines()})
    for (size_t at = 1; at <= (whole.size() > 40 ? 51 : 32); ++at) {
      Lines lines = whole;
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at) - 1, "");
      EXPECT_THAT(parse_refusal(lines), AllOf(HasSubstr(fmt::format("x.txt:{}:", at)), HasSubstr("blank line")));
    }
}

TEST(ConfigText, EveryLineWithoutItsColon) {
  for (const Lines& whole : {short_lines(), long_lines()})
    for (size_t at = 1; at <= (whole.size() > 40 ? 51 : 32); ++at) {
      if (whole[at - 1][0] == '=' || whole[at - 1][0] == '#') continue;
      const std::string text = parse_refusal(with_line(whole, at, "nothing to say"));
      EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("x.txt:{}:", at)), HasSubstr("has no ':'"))) << at;
    }
}

TEST(ConfigText, AShiftedLineSaysWhatWasExpected) {
  Lines lines = short_lines();
  lines.erase(lines.begin() + 2);  // python
  EXPECT_THAT(parse_refusal(lines), AllOf(HasSubstr("x.txt:3: expected the key 'python', found 'gpu_list'"),
                                          HasSubstr("32-line"), HasSubstr("missing or too many above")));
  lines = short_lines();
  lines.erase(lines.begin() + 7);  // --batch-size
  EXPECT_THAT(parse_refusal(lines), AllOf(HasSubstr("x.txt:8: expected a key for train_batch_size"),
                                          HasSubstr("'batch'"), HasSubstr("found '--pretrained'")));
}

TEST(ConfigText, ADuplicateKeyIsNamedWithBothLines) {
  Lines lines = short_lines();
  lines.insert(lines.begin() + 3, "model_name:other");
  EXPECT_THAT(parse_refusal(lines), AllOf(HasSubstr("x.txt:4:"), HasSubstr("'gpu_list'"),
                                          HasSubstr("found 'model_name'"), HasSubstr("line 2 has that key already")));
  lines = long_lines();
  lines.insert(lines.begin() + 54, "batch_size:4");
  EXPECT_THAT(parse_refusal(lines), AllOf(HasSubstr("x.txt:55: batch_size"), HasSubstr("line 53")));
}

TEST(ConfigText, BytesThatAreNoText) {
  EXPECT_THAT(parse_refusal(with_line(short_lines(), 14, "norm_train:a\xff\xfe")),
              AllOf(HasSubstr("x.txt:14:"), HasSubstr("UTF-8"), HasSubstr("\\xff")));
  EXPECT_THAT(parse_refusal(with_line(short_lines(), 2, std::string("model_name:a\0b", 14))), HasSubstr("x.txt:2:"));
  EXPECT_THAT(parse_refusal(with_line(short_lines(), 9, "--pretrained:a\rb")), HasSubstr("x.txt:9:"));
}

TEST(ConfigText, EmptyAndEndless) {
  for (const char* text : {"", "\n", " \r\n\n", "\xef\xbb\xbf"})
    EXPECT_THAT(parse_refusal(text), HasSubstr("x.txt: the file is empty"));
  EXPECT_THAT(parse_refusal(std::string(2u << 20, 'a')), HasSubstr("not a test case"));
  Lines lines = short_lines();
  lines.resize(20);
  EXPECT_THAT(parse_refusal(lines), AllOf(HasSubstr("x.txt:20: the file ends here"), HasSubstr("export_weights")));
  lines = short_lines();
  lines.emplace_back("one:more");
  EXPECT_THAT(parse_refusal(lines), AllOf(HasSubstr("x.txt:33:"), HasSubstr("32 lines")));
}

TEST(ConfigText, AFileThatIsNotThere) {
  EXPECT_THROW(read_config("/no/such/file.txt"), UsageError);
  const TempDir folder;
  EXPECT_THROW(read_config(folder.path().string()), UsageError);
}

// --- --set

std::string set_refusal(ConfigText config, const std::string& assignment) {
  return trireme::refusal([&] { set_value(config, assignment); });
}

TEST(SetValue, ByKeyByNameAndByLine) {
  ConfigText config = parse(short_lines());
  set_value(config, "gpu_list=a,b;cpu:2");
  set_value(config, "--epochs=lite_train_lite_infer=1");
  set_value(config, "train_batch_size=2");
  set_value(config, "31=--image:./lite_data/val");
  EXPECT_EQ(config.at("gpu_list").value, "a,b;cpu:2");
  EXPECT_EQ(config.at("epochs").value, "lite_train_lite_infer=1");
  EXPECT_EQ(config.at("train_batch_size").value, "2");
  EXPECT_EQ(config.at("infer_batch_size").value, "1|4");
  EXPECT_EQ(config.at("image").key, "--image");
  EXPECT_EQ(config.at("image").value, "./lite_data/val");
  config = parse(long_lines());
  set_value(config, "epoch=3");
  EXPECT_EQ(config.benchmark[2].value, "3");
}

TEST(SetValue, WhatIsNotOneLineIsRefused) {
  const ConfigText config = parse(short_lines());
  EXPECT_THAT(set_refusal(config, "--batch-size=2"),
              AllOf(HasSubstr("lines 8 and 29"), HasSubstr("train_batch_size"), HasSubstr("infer_batch_size")));
  EXPECT_THAT(set_refusal(config, "gpulist=0"), HasSubstr("did you mean gpu_list?"));
  EXPECT_THAT(set_refusal(config, "gpu_list"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(set_refusal(config, "=x"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(set_refusal(config, "1=a:b"), HasSubstr("no key:value"));
  EXPECT_THAT(set_refusal(config, "77=a:b"), HasSubstr("no key:value"));
  EXPECT_THAT(set_refusal(config, "3=gpu_list:0"), HasSubstr("'python'"));
  EXPECT_THAT(set_refusal(config, "3=python"), HasSubstr("has no ':'"));
  EXPECT_THAT(set_refusal(config, "model_name=\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(set_refusal(parse(long_lines()), "null=1"), HasSubstr("no such line"));
}

}  // namespace
}  // namespace trireme::tipc
