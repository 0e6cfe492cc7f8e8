#include "trireme/launch/live/page_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "trireme/core/error.h"

namespace trireme::launch {
namespace {

using nlohmann::json;
using testing::HasSubstr;

RankView training(int rank, int64_t step) {
  RankView view{.rank = rank, .host = "alpha", .device = "CPU", .pid = 100 + rank, .state = "running"};
  view.records = true;
  view.step = step;
  view.steps_per_second = 10;
  view.samples_per_second = 640;
  view.shares = {.compute = 0.8, .communication = 0.1, .data = 0.1, .background = 0.3};
  view.values = {{"loss", 0.5 + rank}};
  view.operations = {{"all_reduce", {.count = 10, .bytes = 4000, .seconds = 0.5}}};
  return view;
}

TEST(PageJson, AJobIsAsFarAsItsLastRank) {
  const JobTotals totals = totals_of({training(0, 12), training(1, 10)});
  EXPECT_EQ(totals.step, 10);
  EXPECT_EQ(totals.samples_per_second, 1280);
  EXPECT_EQ(totals.values.at("loss"), 0.5);
  EXPECT_EQ(totals.operations.at("all_reduce").count, 20u);
  EXPECT_NEAR(totals.shares.compute, 0.8, 1e-9);
  EXPECT_FALSE(totals.slowest);
}

TEST(PageJson, TheTimeLeftIsThatOfTheLastRank) {
  RankView ahead = training(0, 30), behind = training(1, 20);
  ahead.goal = {.epoch = 2, .epochs = 3, .last_step = 60};
  behind.goal = {.epoch = 1, .epochs = 3, .last_step = 60};
  EXPECT_EQ(totals_of({ahead, behind}).goal.epoch, 1);
  EXPECT_EQ(seconds_left(totals_of({ahead, behind})), 4.0);
  EXPECT_FALSE(seconds_left(totals_of({training(0, 30)})));
  const json progress = json::parse(progress_json({.world_size = 2, .ranks = {ahead, behind}}));
  EXPECT_EQ(progress.at("last_step"), 60);
  EXPECT_EQ(progress.at("seconds_left"), 4.0);
  const auto read = job_view_from_json(state_json({.world_size = 2, .ranks = {ahead, behind}}));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->ranks[0].goal.epoch, 2);
}

TEST(PageJson, TheSlowestRankIsTheOneThatDoesNotWait) {
  RankView slow = training(2, 10);
  slow.shares = {.compute = 0.98, .communication = 0.02, .data = 0, .background = 0};
  RankView waits = training(0, 10);
  waits.shares = {.compute = 0.5, .communication = 0.5, .data = 0, .background = 0};
  RankView also = waits;
  also.rank = 1;
  EXPECT_EQ(totals_of({waits, also, slow}).slowest, 2);
}

// Its last shares would count for as long as the others run.
TEST(PageJson, ARankThatHasEndedIsNotInTheShares) {
  RankView ended = training(0, 10), computes = training(1, 10), waits = training(2, 10);
  ended.ended = true;
  ended.shares = {.compute = 1, .communication = 0, .data = 0, .background = 0};
  computes.shares = {.compute = 0.9, .communication = 0.1, .data = 0, .background = 0};
  waits.shares = {.compute = 0.5, .communication = 0.5, .data = 0, .background = 0};
  const JobTotals totals = totals_of({ended, computes, waits});
  EXPECT_NEAR(totals.shares.compute, 0.7, 1e-9);
  EXPECT_EQ(totals.slowest, 1);
  EXPECT_EQ(totals.operations.at("all_reduce").count, 30u) << "its operations stay";
  computes.ended = waits.ended = true;
  EXPECT_NEAR(totals_of({ended, computes, waits}).shares.compute, 0.8, 1e-9) << "a report shows the end of all of them";
}

TEST(PageJson, WhatIsNotKnownIsNull) {
  const json state = json::parse(state_json({.world_size = 1, .ranks = {{.rank = 0, .host = "alpha"}}}));
  EXPECT_TRUE(state.at("ranks").at(0).at("step").is_null());
  EXPECT_TRUE(state.at("ranks").at(0).at("shares").is_null());
  EXPECT_TRUE(state.at("totals").at("samples_per_second").is_null());
  EXPECT_TRUE(state.at("verdict").is_null());
}

TEST(PageJson, ALossThatIsNoNumberIsNull) {
  RankView rank = training(0, 1);
  rank.values["loss"] = std::numeric_limits<double>::quiet_NaN();
  const std::string text = state_json({.world_size = 1, .ranks = {rank}});
  EXPECT_TRUE(json::parse(text).at("ranks").at(0).at("values").at("loss").is_null());
  EXPECT_TRUE(
      json::parse(curves_json({{"loss", {0, {{1, 0.5, std::nan("")}}}}})).at("loss").at("points")[0][2].is_null());
}

TEST(PageJson, AnyBytesOfALogAreText) {
  const json log = json::parse(log_json({.rank = 1, .path = "log/workerlog.1", .text = "good\n\xff\x1b[1m bad\n"}));
  EXPECT_THAT(log.at("text").get<std::string>(), HasSubstr("good\n\\xff"));
}

TEST(PageJson, TopReadsTheState) {
  JobView job{.job_id = "mnist", .host = "alpha", .nodes = 2, .world_size = 2, .restarts = 1, .state = "failure"};
  job.exit_code = 9;
  job.started_ms = 5;
  job.now_ms = 7;
  job.ranks = {training(0, 12), {.rank = 1, .node = 1, .host = "be\x1b[31mta"}};
  job.ranks[0].values["bad"] = std::nan("");
  job.ranks[0].waits_ms = 400;
  job.verdict = {.kind = watch::Verdict::Kind::busy, .culprit = 1, .words = "rank 0 waits", .details = {"a"}};
  const auto read = job_view_from_json(state_json(job));
  ASSERT_TRUE(read);
  EXPECT_EQ(std::tuple(read->job_id, read->nodes, read->world_size, read->restarts), std::tuple("mnist", 2, 2, 1));
  EXPECT_EQ(std::tuple(read->state, read->exit_code, read->started_ms, read->now_ms), std::tuple("failure", 9, 5, 7));
  EXPECT_EQ(totals_of(read->ranks).samples_per_second, 640);
  EXPECT_EQ(std::tuple(read->ranks.at(0).step, read->ranks[0].waits_ms, read->ranks[0].pid), std::tuple(12, 400, 100));
  EXPECT_EQ(read->ranks[0].shares.background, 0.3);
  EXPECT_EQ(read->ranks[0].values.at("loss"), 0.5);
  EXPECT_TRUE(std::isnan(read->ranks[0].values.at("bad")));
  EXPECT_EQ(std::tuple(read->ranks.at(1).step, read->ranks[1].cpu, read->ranks[1].records), std::tuple(-1, -1, false));
  EXPECT_EQ(read->ranks[1].host, "be\\x1b[31mta") << "what a terminal would obey is shown";
  EXPECT_EQ(std::tuple(read->verdict.culprit, read->verdict.words), std::tuple(1, "rank 0 waits"));
  EXPECT_THAT(read->verdict.details, testing::ElementsAre("a"));
}

TEST(PageJson, WhatIsNotAStateIsNotRead) {
  for (const char* text : {"", "{}", "[]", "null", "{\"job_id\":7", R"({"job_id":7})"})
    EXPECT_FALSE(job_view_from_json(text)) << text;
  json state = json::parse(state_json({.world_size = 1, .ranks = {training(0, 1)}}));
  EXPECT_TRUE(job_view_from_json(state.dump()));
  state["ranks"][0]["shares"] = "most of it";
  EXPECT_FALSE(job_view_from_json(state.dump()));
}

TEST(PageJson, Progress) {
  JobView job{.job_id = "mnist", .world_size = 2, .started_ms = 1'785'766'000'000, .now_ms = 1'785'766'012'500};
  job.ranks = {training(0, 12), training(1, 10)};
  job.verdict = {.kind = watch::Verdict::Kind::busy, .words = "rank 0 waits"};
  const json progress = json::parse(progress_json(job));
  EXPECT_EQ(progress.at("state"), "running");
  EXPECT_EQ(progress.at("seconds"), 12.5);
  EXPECT_EQ(progress.at("step"), 10);
  EXPECT_EQ(progress.at("values").at("loss"), 0.5);
  EXPECT_EQ(progress.at("waits"), "rank 0 waits");
  EXPECT_TRUE(progress.at("exit_code").is_null());
  EXPECT_THAT(progress.at("updated").get<std::string>(), testing::MatchesRegex("2026-..-..T..:..:..Z"));
}

TEST(JobView, TravelsBetweenNodes) {
  NodeView view{.node = 1, .ranks = {training(2, 10)}};
  view.ranks[0].values["bad"] = std::nan("");
  view.timelines = {
      {.rank = 2, .now = 500, .spans = {{.start = 100, .length = 50, .kind = SpanKind::backward, .step = 10}}}};
  view.log = {.rank = 2, .path = "log/workerlog.0", .text = "line \xff\n"};
  const NodeView read = node_view_from_json(to_json(view));
  EXPECT_EQ(read.node, 1);
  EXPECT_EQ(read.ranks.at(0).step, 10);
  EXPECT_EQ(read.ranks[0].values.at("loss"), 2.5);
  EXPECT_TRUE(std::isnan(read.ranks[0].values.at("bad")));
  EXPECT_EQ(read.ranks[0].operations.at("all_reduce").bytes, 4000u);
  EXPECT_EQ(read.timelines.at(0).spans.at(0).length, 50);
  EXPECT_EQ(read.log.rank, 2);
}

TEST(JobView, ASpanInsideAnotherStaysInside) {
  const TimelineSpan outer = timeline_span({.started = 900, .ended = 10'800}, 0);
  const TimelineSpan inner = timeline_span({.started = 5'000, .ended = 10'700}, 0);
  EXPECT_LE(outer.start, inner.start);
  EXPECT_GE(outer.start + outer.length, inner.start + inner.length);
}

TEST(JobView, OfAnotherProgramIsAnError) {
  for (const char* text : {"", "{}", "[]", "null", R"({"node":0,"ranks":7,"timelines":[],"log":{}})"})
    EXPECT_THROW(node_view_from_json(text), PeerError) << text;
  NodeView view{.timelines = {{.rank = 0, .spans = {{.start = -5}}}}};
  EXPECT_THROW(node_view_from_json(to_json(view)), PeerError);
}

}  // namespace
}  // namespace trireme::launch
