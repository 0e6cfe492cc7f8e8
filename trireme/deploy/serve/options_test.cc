#include "trireme/deploy/serve/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

using testing::HasSubstr;

std::string refusal(std::vector<std::string> words) {
  words.insert(words.begin(), {"--model-dir", "m"});
  try {
    parse_options(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ServeOptions, AreSafeByDefault) {
  const ServeOptions options = parse_options({"--model-dir", "m"}).options;
  EXPECT_EQ(options.host, "127.0.0.1");
  EXPECT_EQ(options.server.limits.body_bytes, 16u << 20);
  EXPECT_GE(options.server.workers, 2 * 8 + 1) << "two batches";
}

TEST(ServeOptions, BoundTheRequestsThatWaitAndSpareTheQuickOnes) {
  const http::ServerOptions options = parse_options({"--model-dir", "m", "--queue", "70"}).options.server;
  EXPECT_EQ(options.max_waiting, 70U);
  EXPECT_TRUE(options.is_quick({.method = "GET", .path = "/healthz", .query = "", .headers = {}, .body = ""}));
  EXPECT_FALSE(options.is_quick({.method = "POST", .path = "/predict", .query = "", .headers = {}, .body = ""}));
}

TEST(ServeOptions, AreReadInEverySpelling) {
  const ServeOptions options =
      parse_options({"--model_dir=m", "--port", "0", "--batch_size", "4", "--batch-wait-ms=7", "--decode-memory", "2G",
                     "--body-limit", "1.5M", "--drain-timeout", "500ms", "--request_timeout=2m", "--use-gpu", "True",
                     "--engine", "torch", "--topk", "3"})
          .options;
  EXPECT_EQ(options.model_dir, "m");
  EXPECT_EQ(options.port, 0);
  EXPECT_EQ(options.service.max_batch, 4U);
  EXPECT_EQ(options.service.batch_wait, Millis(7));
  EXPECT_EQ(options.service.decode_bytes, size_t{2} << 30);
  EXPECT_EQ(options.server.limits.body_bytes, 1572864U);
  EXPECT_EQ(options.drain_timeout, Millis(500));
  EXPECT_EQ(options.service.request_timeout, std::chrono::minutes(2));
  EXPECT_TRUE(options.predictor.use_gpu);
  EXPECT_EQ(options.predictor.engine, infer::EngineKind::torch);
  EXPECT_EQ(options.predictor.topk, 3);
}

TEST(ServeOptions, SayWhatIsWrong) {
  EXPECT_THAT(refusal({"--prot", "1"}), HasSubstr("did you mean --port?"));
  EXPECT_THAT(refusal({"--port"}), HasSubstr("needs a value"));
  EXPECT_THAT(refusal({"--host", "--port", "80"}), HasSubstr("--host needs a value"));
  EXPECT_THAT(refusal({"--host", ""}), HasSubstr("127.0.0.1"));
  EXPECT_THAT(refusal({"--port", "65536"}), HasSubstr("from 0 to 65535"));
  EXPECT_THAT(refusal({"--batch-size", "0"}), HasSubstr("from 1"));
  EXPECT_THAT(refusal({"--body-limit", "0"}), HasSubstr("1 byte"));
  EXPECT_THAT(refusal({"--body-limit", "1023"}), HasSubstr("from 1K to 1024G"));
  EXPECT_THAT(refusal({"--decode-memory", "1"}), HasSubstr("from 1M to 1024G"));
  for (const char* name : {"--request-timeout", "--read-timeout", "--idle-timeout", "--drain-timeout"}) {
    EXPECT_THAT(refusal({name, "0"}), HasSubstr("from 1ms to 30 days"));
    EXPECT_THAT(refusal({name, "0.1ms"}), HasSubstr("from 1ms to 30 days"));
    EXPECT_THAT(refusal({name, "31000h"}), HasSubstr("30 days"));
    EXPECT_EQ(refusal({name, "1ms"}), "accepted");
  }
  EXPECT_THAT(refusal({"--body-limit", "16X"}), HasSubstr("16M"));
  EXPECT_THAT(refusal({"--drain-timeout", "-1"}), HasSubstr("500ms"));
  EXPECT_THAT(refusal({"--use-gpu", "maybe"}), HasSubstr("true or false"));
  EXPECT_THAT(refusal({"--engine", "magic"}), HasSubstr("openvino"));
  EXPECT_THAT(refusal({"--engine", "openvino", "--use-gpu", "True"}), HasSubstr("take --engine torch"));
  EXPECT_THAT(refusal({"--queue", "7"}), HasSubstr("--queue 7 is too short: 8 pictures"));
  EXPECT_EQ(refusal({"--queue", "8"}), "accepted");
  EXPECT_EQ(refusal({"--queue", "1", "--batch-size", "1"}), "accepted");
  EXPECT_EQ(refusal({"--queue", "2", "--images-per-request", "2"}), "accepted");
  EXPECT_THAT(refusal({"--memory-limit", "1M"}), HasSubstr("--body-limit"));
  EXPECT_THROW(parse_options({}), UsageError);
  EXPECT_THROW(parse_options({"x"}), UsageError);
}

TEST(ServeOptions, HelpNamesThemAll) {
  EXPECT_EQ(parse_options({"--help"}).help, "");
  EXPECT_EQ(parse_options({"-h", "errors"}).help, "errors");
  for (const char* name : {"--model-dir", "--port-file", "--drain-timeout", "curl"})
    EXPECT_THAT(help(), HasSubstr(name));
  EXPECT_THAT(help("errors"), HasSubstr("bad_topk"));
  EXPECT_THAT(help("--markdown"), HasSubstr("| `--queue` N |"));
}

TEST(ServeOptions, HelpFitsOneScreen) {
  const auto lines = split(help(), '\n');
  EXPECT_LE(lines.size(), 45U) << help();
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace trireme::serve
