#include "trireme/launch/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/core/text.h"
#include "trireme/watch/process_usage.h"

namespace trireme::launch {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kNow = 1'000'000;

RankView training(int rank, int64_t step) {
  RankView view{
      .rank = rank, .node = rank / 2, .host = rank < 2 ? "alpha" : "beta", .device = "CPU", .pid = 100 + rank};
  view.state = "running";
  view.records = true;
  view.step = step;
  view.samples_per_second = 640;
  view.cpu = 0.98;
  view.memory = 1 << 20;
  view.shares = {.compute = 0.8, .communication = 0.15, .data = 0.05, .background = 0.3};
  view.activity = "in the forward pass";
  view.values = {{"loss", 0.4321}};
  return view;
}

JobView job_of(std::vector<RankView> ranks) {
  const int size = static_cast<int>(ranks.size());
  return {.job_id = "mnist",
          .nodes = 2,
          .world_size = size,
          .started_ms = kNow - 130'000,
          .now_ms = kNow,
          .ranks = std::move(ranks)};
}

std::string text_of(const JobView& job, const TopSize& size = {}, int64_t now = kNow) {
  return join(top_lines(job, size, now), "\n");
}

// Of UTF-8.
size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(Top, ShowsTheJobAndItsRanks) {
  const std::string text = text_of(job_of({training(0, 120), training(1, 120), training(2, 121)}));
  EXPECT_THAT(text, HasSubstr("mnist: running for 0:02:10, 3 ranks on 2 nodes\n"));
  EXPECT_THAT(text, HasSubstr("step 120, 1920 samples/s, loss 0.4321; compute 80 %, communication 15 %, data 5 %\n\n"));
  EXPECT_THAT(text,
              HasSubstr("rank  pid  state    host   device  step  samples/s    loss  comp  comm  data  CPU   memory  "
                        "now\n"));
  EXPECT_THAT(text,
              HasSubstr("   2  102  running  beta   CPU      121        640  0.4321   80%   15%    5%  98%  1.0 MiB  "
                        "in the forward pass"));
}

TEST(Top, ARankThatWaitsShowsItsCallAndTheVerdict) {
  JobView job = job_of({training(0, 10), training(1, 10)});
  job.ranks[0].activity = "all_reduce #17";
  job.ranks[0].waits_ms = 4'000;
  job.verdict = {.culprit = 1, .words = "rank 0 waits for rank 1", .details = {"rank 1: running"}, .advice = "look"};
  const std::string text = text_of(job);
  EXPECT_THAT(text, HasSubstr("all_reduce #17 for 4.0 s\n"));
  EXPECT_THAT(text, HasSubstr("\n\nrank 0 waits for rank 1\n  rank 1: running\nlook"));
}

TEST(Top, WhatIsNotKnownHasNoNumber) {
  JobView job = job_of({{.rank = 0, .host = "alpha", .device = "CPU", .state = "running"}});
  EXPECT_THAT(text_of(job), ContainsRegex("no step recorded\n"));
  EXPECT_THAT(text_of(job), ContainsRegex("0 +- +running +alpha +CPU +- +- +- +- +- +- +- +-(\n|$)"));
}

TEST(Top, ARankThatHasEndedSaysHow) {
  JobView job = job_of({training(0, 10), training(1, 10)});
  job.ranks[1].ended = job.ranks[1].failed = true;
  job.ranks[1].state = "killed by signal 9";
  EXPECT_THAT(text_of(job), ContainsRegex("1 +101 +failed .* killed by signal 9"));
}

TEST(Top, ANarrowTerminalShowsWhatMattersMost) {
  const auto lines = top_lines(job_of({training(0, 120), training(1, 120)}), {.columns = 60, .rows = 24}, kNow);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 60u) << line;
  const std::string text = join(lines, "\n");
  for (const char* title : {"rank", "step", "samples/s", "loss", "host", "comp", "comm", "data"})
    EXPECT_THAT(text, HasSubstr(title));
  EXPECT_THAT(text, Not(HasSubstr("device")));
}

TEST(Top, OfManyRanksTheWorstAreShown) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < 256; ++rank) ranks.push_back(training(rank, rank == 77 ? 100 : 120));
  ranks[200].ended = ranks[200].failed = true;
  const auto lines = top_lines(job_of(ranks), {.columns = 100, .rows = 12}, kNow);
  EXPECT_EQ(lines.size(), 12u);
  EXPECT_THAT(lines[4], HasSubstr(" 200 "));
  EXPECT_THAT(lines[5], testing::StartsWith("  77 "));
  EXPECT_EQ(lines.back(), "… 249 of 256 ranks are not shown; the worst are above");
  EXPECT_EQ(top_lines(job_of(ranks), {}, kNow).size(), 260u);
}

TEST(Top, AnySizeOfATerminal) {
  JobView job = job_of({training(0, 1), training(1, 1), training(2, 1)});
  job.verdict = {.words = "rank 0 waits", .details = {"a", "b", "c", "d"}, .advice = "look"};
  job.ranks[0].host = "größter";
  for (size_t columns = 1; columns < 130; ++columns) {
    for (size_t rows = 1; rows < 15; ++rows) {
      const auto lines = top_lines(job, {columns, rows}, kNow);
      EXPECT_LE(lines.size(), rows);
      for (const std::string& line : lines) EXPECT_LE(characters(line), columns) << line;
    }
  }
}

TEST(Top, AJobThatHasEnded) {
  JobView job = job_of({training(0, 10)});
  job.state = "failure";
  EXPECT_THAT(text_of(job, {}, kNow + 12'000),
              testing::StartsWith("mnist: failure after 0:02:10, 1 rank on 2 nodes\n"));
}

TEST(Top, AnOldStateSaysSo) {
  EXPECT_THAT(text_of(job_of({}), {}, kNow + 12'000), HasSubstr("; no news from the launcher for 12 s"));
}

TEST(Top, UsageOfThisProcess) {
  const auto usage = watch::read_usage(::getpid());
  ASSERT_TRUE(usage);
  EXPECT_GT(usage->memory_bytes, 1 << 20);
  EXPECT_FALSE(watch::read_usage(-1));
}

}  // namespace
}  // namespace trireme::launch
