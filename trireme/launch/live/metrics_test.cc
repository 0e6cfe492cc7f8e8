#include "trireme/launch/live/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

namespace trireme::launch {
namespace {

using testing::HasSubstr;

// A strict reader of text format 0.0.4: every family has its HELP and TYPE once and before its samples, which stand
// together; names, labels and values are well formed; no series comes twice.
class StrictParser {
 public:
  std::optional<std::string> problem(const std::string& text) {
    if (text.empty() || text.back() != '\n') return "the last line has no end";
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (!(line.starts_with('#') ? read_comment(line) : read_sample(line))) return line;
    return std::nullopt;
  }
  const std::map<std::string, double>& samples() const { return samples_; }

 private:
  bool read_comment(const std::string& line) {
    static const std::regex kHelp("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) \\S.*");
    static const std::regex kType("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)");
    std::smatch match;
    if (std::regex_match(line, match, kHelp)) {
      family_ = match[1];
      type_.clear();
      return families_.insert(family_).second;
    }
    if (!std::regex_match(line, match, kType) || match[1] != family_ || !type_.empty()) return false;
    type_ = match[2];
    return type_ != "counter" || family_.ends_with("_total");
  }

  bool read_sample(const std::string& line) {
    static const std::regex kSample(
        "([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{([a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\\\n]|\\\\[\\\\\"n])*\",?)+\\})? (\\S+)");
    static const std::regex kValue("[-+]?(Inf|[0-9]+(\\.[0-9]+)?(e[-+]?[0-9]+)?)|NaN");
    std::smatch match;
    if (!std::regex_match(line, match, kSample) || match[1] != family_ || type_.empty()) return false;
    if (!std::regex_match(match[5].str(), kValue)) return false;
    return samples_.emplace(match[1].str() + match[2].str(), std::strtod(match[5].str().c_str(), nullptr)).second;
  }

  std::string family_;
  std::string type_;
  std::set<std::string> families_;
  std::map<std::string, double> samples_;
};

JobView job() {
  JobView job{.job_id = "a \"job\" \\ of\nmine", .world_size = 2, .restarts = 1};
  RankView rank{.rank = 0, .host = "alpha"};
  rank.records = true;
  rank.step = 120;
  rank.samples = 7680;
  rank.steps_per_second = 12.5;
  rank.cpu_seconds = 61.25;
  rank.memory = 1 << 30;
  rank.shares = {.compute = 0.75, .communication = 0.2, .data = 0.05, .background = 0.1};
  rank.values = {{"loss", std::numeric_limits<double>::quiet_NaN()},
                 {"lr", 1e-7},
                 {"up", std::numeric_limits<double>::infinity()}};
  rank.operations = {{"all_reduce", {.count = 240, .bytes = uint64_t{1} << 40, .seconds = 1.5}}};
  job.ranks = {rank, {.rank = 1, .host = "be\"ta"}};
  return job;
}

TEST(Metrics, AStrictParserAcceptsThem) {
  StrictParser parser;
  EXPECT_EQ(parser.problem(metrics_text(job())), std::nullopt);
  EXPECT_EQ(parser.samples().at("trireme_rank_step{rank=\"0\",host=\"alpha\"}"), 120);
  EXPECT_EQ(parser.samples().at("trireme_rank_up{rank=\"1\",host=\"be\\\"ta\"}"), 1);
  EXPECT_EQ(parser.samples().at("trireme_job_restarts_total"), 1);
  EXPECT_EQ(parser.samples().at("trireme_operations_total{rank=\"0\",host=\"alpha\",operation=\"all_reduce\"}"), 240);
  EXPECT_EQ(parser.samples().at("trireme_rank_time_ratio{rank=\"0\",host=\"alpha\",what=\"data\"}"), 0.05);
  EXPECT_EQ(parser.samples().count("trireme_rank_step{rank=\"1\",host=\"be\\\"ta\"}"), 0u) << "not known: no sample";
}

TEST(Metrics, TheParserIsStrict) {
  for (const char* bad : {"", "a 1\n", "# HELP a x\n# TYPE a counter\na 1\n", "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
                          "# HELP a x\n# TYPE a gauge\na 0x1\n", "# HELP a x\n# TYPE a gauge\na{b=c} 1\n",
                          "# HELP a x\n# TYPE a gauge\na 1", "# HELP a x\na 1\n"})
    EXPECT_TRUE(StrictParser().problem(bad)) << bad;
}

TEST(Metrics, AJobThatHasEnded) {
  JobView ended = job();
  ended.state = "failure";
  EXPECT_THAT(metrics_text(ended), HasSubstr("\ntrireme_job_running 0\n"));
}

}  // namespace
}  // namespace trireme::launch
