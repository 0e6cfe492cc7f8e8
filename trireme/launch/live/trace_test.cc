#include "trireme/launch/live/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/core/error.h"

namespace trireme::launch {
namespace {

using nlohmann::json;

TimelineSpan phase(SpanKind kind, int64_t start, int64_t length) {
  return {.start = start, .length = length, .kind = kind, .step = 100};
}

TimelineSpan collective(uint64_t number, int64_t start, int64_t length, SpanKind kind = SpanKind::background_call) {
  return {.start = start,
          .length = length,
          .kind = kind,
          .step = 100,
          .name = "all_reduce",
          .bytes = 4000,
          .group = 7,
          .number = number};
}

RankTrace rank_of(int rank, int64_t shift = 0) {
  RankTrace trace{.rank = rank, .host = "alpha"};
  trace.spans = {{.start = 1000 + shift, .kind = SpanKind::step, .step = 100},
                 phase(SpanKind::backward, 1100 + shift, 400)};
  for (uint64_t i = 0; i < 4; ++i)
    trace.spans.push_back(collective(i + 1, 1150 + shift + 100 * static_cast<int64_t>(i), 90));
  return trace;
}

// What Chrome's viewer and Perfetto require of the events that are used here.
void expect_valid(const json& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> threads;
  std::set<int> named;
  for (const json& event : trace.at("traceEvents")) {
    ASSERT_TRUE(event.at("name").is_string() && !event.at("name").get<std::string>().empty()) << event;
    ASSERT_TRUE(event.at("pid").is_number_integer() && event.at("tid").is_number_integer()) << event;
    if (event.at("ph") == "M") {
      ASSERT_TRUE(event.at("args").at("name").is_string()) << event;
      if (event.at("name") == "process_name") named.insert(event.at("pid").get<int>());
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X") << event;
    ASSERT_GE(event.at("ts").get<int64_t>(), 0) << event;
    ASSERT_GE(event.at("dur").get<int64_t>(), 0) << event;
    ASSERT_TRUE(named.contains(event.at("pid").get<int>())) << event;
    threads[{event.at("pid"), event.at("tid")}].emplace_back(event.at("ts"), event.at("dur"));
  }
  for (auto& [thread, spans] : threads)  // on one thread they must be beside or inside each other
    for (const auto& a : spans)
      for (const auto& b : spans)
        if (a.first < b.first && b.first < a.first + a.second) {
          ASSERT_LE(b.first + b.second, a.first + a.second) << thread.first << " " << thread.second;
        }
}

std::vector<json> named(const json& trace, int rank, const std::string& name) {
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents"))
    if (event.at("pid") == rank && event.at("name") == name && event.at("ph") == "X") found.push_back(event);
  return found;
}

TEST(Trace, CommunicationOverlapsBackwardOnBothRanks) {
  const json trace = json::parse(chrome_trace("mnist", {{rank_of(0), rank_of(1, 10)}}));
  expect_valid(trace);
  for (const int rank : {0, 1}) {
    const json backward = named(trace, rank, "backward").at(0);
    const auto calls = named(trace, rank, "all_reduce");
    ASSERT_EQ(calls.size(), 4u);
    EXPECT_GT(calls[0].at("ts"), backward.at("ts"));
    EXPECT_LT(calls[0].at("ts").get<int64_t>() + calls[0].at("dur").get<int64_t>(),
              backward.at("ts").get<int64_t>() + backward.at("dur").get<int64_t>());
    EXPECT_NE(calls[0].at("tid"), backward.at("tid"));
    EXPECT_EQ(calls[0].at("args").at("bytes"), 4000);
    EXPECT_EQ(named(trace, rank, "step 100").size(), 1u);
  }
}

TEST(Trace, OperationsAtTheSameTimeGetLanesOfTheirOwn) {
  RankTrace rank{.rank = 0, .host = "alpha"};
  rank.spans = {collective(1, 100, 50), collective(2, 120, 50), collective(3, 160, 5), collective(4, 180, 5)};
  const json trace = json::parse(chrome_trace("mnist", {{rank}}));
  expect_valid(trace);
  std::set<int> lanes;
  for (const json& event : named(trace, 0, "all_reduce")) lanes.insert(event.at("tid").get<int>());
  EXPECT_EQ(lanes.size(), 2u);
}

TEST(Trace, TheClocksOfTwoNodesBecomeOne) {
  constexpr int64_t kBehind = 250'000;
  std::vector<NodeTrace> nodes{{rank_of(0)}, {rank_of(1, kBehind)}};
  nodes[1][0].spans[3].length += 40'000;  // one outlier does not matter
  align_clocks(nodes);
  EXPECT_EQ(nodes[0][0].spans[0].start, 1000);
  EXPECT_EQ(nodes[1][0].spans[0].start, 1000);
}

TEST(Trace, WithoutCommonCollectivesTheClocksStay) {
  std::vector<NodeTrace> nodes{{rank_of(0)}, {rank_of(1, 70)}};
  for (TimelineSpan& span : nodes[1][0].spans) span.group = 8;
  align_clocks(nodes);
  EXPECT_EQ(nodes[1][0].spans[0].start, 1070);
}

TEST(Trace, WhatDidNotFitIsCounted) {
  RankTrace cut = rank_of(1);
  cut.left_out = 17;
  const json trace = json::parse(chrome_trace("mnist", {{rank_of(0)}, {cut}}));
  EXPECT_EQ(trace.at("otherData").at("truncated"), 17);
}

TEST(Trace, WhichSteps) {
  EXPECT_EQ(parse_step_range("steps=100:110", "--trace"), (StepRange{100, 110}));
  for (const char* bad : {"", "100:110", "steps=", "steps=1", "steps=5:5", "steps=9:2", "steps=-1:2", "steps=1:2:3"})
    EXPECT_THROW(parse_step_range(bad, "--trace"), UsageError) << bad;
}

}  // namespace
}  // namespace trireme::launch
