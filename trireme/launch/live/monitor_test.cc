#include "trireme/launch/live/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>

#include "trireme/core/file.h"
#include "trireme/core/http/test_client.h"
#include "trireme/launch/live/test_log.h"
#include "trireme/store/memory_store.h"

namespace trireme::launch {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kMilli = 1'000'000;

// This process, as a rank that has done some steps.
void train(const RankRings& rings, size_t place, int64_t steps) {
  const auto ring = watch::Ring::map(rings.fd(place), watch::Access::write);
  const int group = ring->start_group({.id = 7, .size = 2, .world = 1});
  const int64_t start = watch::now_ns() - steps * kMilli;
  for (int64_t step = 1; step <= steps; ++step) {
    const int64_t now = start + step * kMilli;
    ring->set_step(step, now);
    ring->append(
        {.started = now, .ended = now + kMilli / 2, .kind = watch::EventKind::phase, .phase = watch::Phase::forward});
    watch::CallRecord call{.group = 7, .number = static_cast<uint64_t>(step), .bytes = 400, .started = now};
    std::strcpy(call.operation, "all_reduce");
    ring->end_call(ring->start_call(call, group), now + kMilli / 2);
    watch::EventRecord loss{.started = now, .ended = now, .value = 1.0 / static_cast<double>(step)};
    loss.kind = watch::EventKind::value;
    std::strcpy(loss.name, "loss");
    ring->append(loss);
  }
}

Monitor::Attempt two_ranks(const TempDir& folder, std::shared_ptr<const RankRings> rings) {
  const std::string log = (folder.path() / "workerlog.").string();
  return {.world = {{0, 0, "alpha", "CPU", log + "0"}, {1, 0, "alpha", "CPU", log + "1"}}, .rings = std::move(rings)};
}

json read_json(const std::filesystem::path& path) {
  return json::parse(read_file(path).value_or("null"));
}

TEST(Monitor, ShowsWhatTheRingsHold) {
  const TempDir folder;
  const auto rings = std::make_shared<const RankRings>(std::vector<int>{0, 1});
  Monitor monitor({.job_id = "mnist", .host = "alpha", .log_dir = folder.path().string(), .trace = StepRange{3, 5}});
  monitor.begin(two_ranks(folder, rings));
  monitor.update({{.pid = ::getpid()}, {.pid = ::getpid()}}, {});
  train(*rings, 0, 8);
  train(*rings, 1, 7);
  write_file_atomically(folder.path() / "workerlog.1", "first\nlast\n", {.durable = false});
  monitor.end_attempt();

  const json state = json::parse(monitor.state());
  EXPECT_EQ(state.at("totals").at("step"), 7);
  EXPECT_EQ(state.at("ranks").at(0).at("step"), 8);
  EXPECT_EQ(state.at("ranks").at(1).at("values").at("loss"), 1.0 / 7);
  EXPECT_EQ(state.at("operations").at(0).at("count"), 15);
  EXPECT_EQ(json::parse(monitor.curves(std::nullopt)).at("loss").at("points").size(), 8u);
  EXPECT_EQ(json::parse(monitor.curves(1)).at("loss").at("points").size(), 7u);
  EXPECT_EQ(json::parse(monitor.timelines({1, 5})).size(), 1u);
  EXPECT_THAT(*monitor.log(1), HasSubstr("last"));
  EXPECT_FALSE(monitor.log(2));
  EXPECT_THAT(monitor.metrics(), HasSubstr("trireme_rank_step{rank=\"0\",host=\"alpha\"} 8\n"));

  monitor.finish("failure", 9, "Rank 1 failed first");
  EXPECT_EQ(read_json(folder.path() / "progress.json").at("state"), "failure");
  EXPECT_EQ(read_json(folder.path() / "live.json").at("exit_code"), 9);
  EXPECT_EQ(read_json(folder.path() / "history.json").at("state").at("failure"), "Rank 1 failed first");
  size_t forwards = 0;
  const json trace = read_json(folder.path() / "trace.json");
  for (const json& event : trace.at("traceEvents")) forwards += event.at("name") == "forward";
  EXPECT_EQ(forwards, 4u) << "two steps of two ranks";
}

// Its thread must not look again when the rings are gone.
TEST(Monitor, WhatWasSeenLastStays) {
  const auto rings = std::make_shared<const RankRings>(std::vector<int>{0});
  NodeCollector collector({.epoch = watch::now_ns()});
  collector.begin({{.rank = 0}}, rings);
  train(*rings, 0, 3);
  collector.read_events();
  collector.look({{.pid = ::getpid()}}, watch::now_ns());
  collector.end();
  collector.look({{.pid = ::getpid()}}, watch::now_ns());
  EXPECT_TRUE(collector.ranks().at(0).records);
  EXPECT_EQ(collector.ranks()[0].step, 3);
}

TEST(Monitor, TheSharesOfARankThatHasEndedStay) {
  const auto rings = std::make_shared<const RankRings>(std::vector<int>{0});
  NodeCollector collector({.epoch = watch::now_ns()});
  collector.begin({{.rank = 0}}, rings);
  train(*rings, 0, 100);
  collector.read_events();
  const int64_t end = watch::now_ns();
  collector.look({{.ended = true, .words = "ended"}}, end);
  const double background = collector.ranks().at(0).shares.background;
  EXPECT_GT(background, 0.2);
  collector.look({{.ended = true, .words = "ended"}}, end + 8'000 * kMilli);
  EXPECT_EQ(collector.ranks()[0].shares.background, background) << "the time after its end does not count";
  EXPECT_EQ(collector.ranks()[0].step, 100);
}

// Trains some steps with a trace of others; what the console says.
std::string console_of_trace(const TempDir& folder, StepRange asked, int64_t steps) {
  LogLines lines;
  const auto rings = std::make_shared<const RankRings>(std::vector<int>{0, 1});
  Monitor monitor({.log_dir = folder.path().string(), .trace = asked});
  monitor.begin(two_ranks(folder, rings));
  if (steps > 0) train(*rings, 0, steps + 1);
  if (steps > 0) train(*rings, 1, steps);
  monitor.end_attempt();
  monitor.finish("success", 0, "");
  return lines.text();
}

TEST(Monitor, TheConsoleSaysWhereTheTraceIs) {
  const TempDir folder;
  const std::string path = (folder.path() / "trace.json").string();
  EXPECT_THAT(console_of_trace(folder, {3, 5}, 8),
              HasSubstr("info: the trace is in " + path + " (asked were steps 3 to 4)\n"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Monitor, TheConsoleSaysWhyThereIsNoTrace) {
  const TempDir folder;
  const std::string warning = "warning: " + (folder.path() / "trace.json").string() + " is not written: ";
  EXPECT_THAT(console_of_trace(folder, {100, 110}, 8),
              HasSubstr(warning + "ranks were in steps 1 to 9, asked were 100 to 109\n"));
  EXPECT_THAT(console_of_trace(folder, {3, 5}, 0), HasSubstr(warning + "no rank recorded a step, asked were 3 to 4\n"));
  EXPECT_EQ(read_json(folder.path() / "live.json").at("trace"),
            "not written: no rank recorded a step, asked were 3 to 4");
}

// The page asks for the log only when it has the final state.
TEST(Monitor, AnOpenPageGetsTheEndOfTheLog) {
  const TempDir folder;
  std::optional<Monitor> monitor(std::in_place,
                                 Monitor::Options{.log_dir = folder.path().string(),
                                                  .dashboard = Dashboard::Options{.address = {"127.0.0.1", 0}},
                                                  .quiet_time = Millis(5'000)});
  monitor->begin(two_ranks(folder, nullptr));
  const uint16_t port = parse_endpoint(monitor->url().substr(7, monitor->url().size() - 8), "url").port;
  http::TestClient page(port);
  const auto get = [&](const std::string& path) {
    return page.ask("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  };
  EXPECT_THAT(get("/api/state"), HasSubstr("\"state\":\"running\""));
  write_file_atomically(folder.path() / "workerlog.1", "first\nlast\n", {.durable = false});
  std::thread launcher([&] {
    monitor->end_attempt();
    monitor->finish("success", 0, "");
    monitor.reset();
  });
  std::string state;
  while (state = get("/api/state"), state.find("\"state\":\"running\"") != std::string::npos) std::this_thread::yield();
  EXPECT_THAT(state, HasSubstr("\"state\":\"success\""));
  std::this_thread::sleep_for(Millis(200));  // layers: sleep ok, because a slow page is what is tested
  EXPECT_THAT(get("/api/log?rank=1"), HasSubstr("first\\nlast\\n"));
  EXPECT_THAT(get("/api/curves"), HasSubstr("200 OK"));
  launcher.join();
}

TEST(Monitor, AProgramWithoutARing) {
  const TempDir folder;
  Monitor monitor({.log_dir = folder.path().string()});
  monitor.begin(two_ranks(folder, nullptr));
  monitor.update({{.pid = ::getpid()}, {.ended = true, .failed = true, .words = "exit 3"}}, {});
  monitor.end_attempt();
  const json state = json::parse(monitor.state());
  EXPECT_GT(state.at("ranks").at(0).at("memory"), 0);
  EXPECT_FALSE(state.at("ranks").at(0).at("records"));
  EXPECT_EQ(state.at("ranks").at(1).at("state"), "exit 3");
}

TEST(Monitor, TheAddressWithTheTokenIsForTheOwnerAlone) {
  const TempDir folder;
  const auto file = folder.path() / "dashboard.url";
  {
    const Monitor monitor({.log_dir = folder.path().string(),
                           .dashboard = Dashboard::Options{.address = {"127.0.0.1", 0}, .needs_token = true}});
    struct stat facts {};
    ASSERT_EQ(::stat(file.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    EXPECT_THAT(*read_file(file), HasSubstr("/#token="));
    EXPECT_THAT(monitor.url(), testing::Not(HasSubstr("token")));
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

// Two launchers with one store.
TEST(Monitor, NodeZeroShowsTheRanksOfTheOthers) {
  const TempDir here, there;
  const auto store = std::make_shared<store::MemoryStore>();
  Monitor node0({.log_dir = here.path().string(), .node = 0, .timelines = true, .trace = StepRange{1, 3}});
  Monitor node1({.log_dir = there.path().string(), .node = 1, .timelines = true, .trace = StepRange{1, 3}});
  const std::vector<RankFacts> world{{0, 0, "alpha", "CPU", ""},
                                     {1, 1, "beta", "CPU", (there.path() / "workerlog.0").string()}};
  write_file_atomically(there.path() / "workerlog.0", "hello from beta\n", {.durable = false});
  const auto rings0 = std::make_shared<const RankRings>(std::vector<int>{0});
  const auto rings1 = std::make_shared<const RankRings>(std::vector<int>{1});
  node0.begin({.world = world, .rings = rings0, .store = store});
  node1.begin({.world = world, .rings = rings1, .store = store});
  node0.update({{.pid = ::getpid()}}, {});
  node1.update({{.pid = ::getpid()}}, {});
  train(*rings0, 0, 5);
  train(*rings1, 0, 5);
  EXPECT_THAT(*node0.log(1), HasSubstr("\"rank\":1"));
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  const auto arrived = [&] {
    const json ranks = json::parse(node0.state()).at("ranks");
    return ranks.at(1).at("step") == 5 && node0.log(1)->find("hello from beta") != std::string::npos &&
           std::filesystem::exists(here.path() / "trace.json");
  };
  while (!arrived() && !deadline.passed()) std::this_thread::yield();
  ASSERT_TRUE(arrived()) << node0.state();
  EXPECT_EQ(json::parse(node0.state()).at("ranks").at(1).at("host"), "beta");
  EXPECT_EQ(json::parse(node0.timelines({0, 1})).size(), 2u);
  EXPECT_TRUE(json::parse(node0.curves(1)).contains("loss"));
  EXPECT_THAT(*read_file(here.path() / "trace.json"), HasSubstr("rank 1 on beta"));
  node1.update({{.ended = true, .failed = true, .words = "exit 3"}}, {});
  node1.end_attempt();
  node0.end_attempt();
  EXPECT_EQ(json::parse(node0.state()).at("ranks").at(1).at("state"), "exit 3");
}

// For `trireme top`, and for the files that stay.
TEST(Monitor, WithoutAPageTheOthersSendTimeLinesAtTheEnd) {
  const TempDir here, there;
  const auto store = std::make_shared<store::MemoryStore>();
  Monitor node0({.log_dir = here.path().string(), .node = 0});
  Monitor node1({.log_dir = there.path().string(), .node = 1});
  const std::vector<RankFacts> world{{0, 0, "alpha", "CPU", (here.path() / "workerlog.0").string()},
                                     {1, 1, "beta", "CPU", "/jobs/workerlog.0"}};
  const auto rings = std::make_shared<const RankRings>(std::vector<int>{1});
  node0.begin({.world = world, .store = store});
  node1.begin({.world = world, .rings = rings, .store = store});
  node1.update({{.pid = ::getpid()}}, {});
  train(*rings, 0, 5);
  const auto step = [&] {
    const auto job = job_view_from_json(read_file(here.path() / "live.json").value_or(""));
    return job && job->ranks.size() == 2 ? job->ranks[1].step : -1;
  };
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  while (step() != 5 && !deadline.passed()) std::this_thread::yield();
  ASSERT_EQ(step(), 5) << node0.state();
  EXPECT_TRUE(json::parse(node0.timelines({1})).empty());
  node1.end_attempt();
  node0.end_attempt();
  EXPECT_FALSE(json::parse(node0.timelines({1})).empty());
  node0.finish("success", 0, "");
  EXPECT_EQ(job_view_from_json(*read_file(here.path() / "live.json"))->state, "success");
  const json logs = read_json(here.path() / "history.json").at("logs");
  EXPECT_EQ(logs.at("0"), "workerlog.0");
  EXPECT_EQ(logs.at("1"), json({{"host", "beta"}, {"path", "/jobs/workerlog.0"}}));
}

// A node has left: the page of the others stays as it was.
TEST(Monitor, ThePageAndItsCurvesOutliveAChangeOfTheNodes) {
  const TempDir folder;
  const auto store = std::make_shared<store::MemoryStore>();
  Monitor node0({.log_dir = folder.path().string(),
                 .dashboard = Dashboard::Options{.address = {"127.0.0.1", 0}, .needs_token = true}});
  const auto rings = std::make_shared<const RankRings>(std::vector<int>{0});
  node0.begin({.world = {{0, 0, "alpha", "CPU", ""}, {1, 1, "beta", "CPU", ""}}, .rings = rings, .store = store});
  train(*rings, 0, 5);
  node0.end_attempt(Millis(0));
  const auto address = read_file(folder.path() / "dashboard.url");
  EXPECT_EQ(json::parse(node0.state()).at("nodes"), 2);

  const auto later = std::make_shared<const RankRings>(std::vector<int>{0});
  node0.begin({.number = 1, .world = {{0, 0, "alpha", "CPU", ""}}, .rings = later});
  train(*later, 0, 3);
  node0.end_attempt(Millis(0));
  EXPECT_EQ(read_file(folder.path() / "dashboard.url"), address);
  EXPECT_EQ(json::parse(node0.state()).at("nodes"), 1);
  EXPECT_EQ(json::parse(node0.state()).at("world_size"), 1);
  EXPECT_EQ(json::parse(node0.curves(0)).at("loss").at("points").size(), 8u);
}

TEST(Monitor, ANodeThatDoesNotTellItsEnd) {
  const TempDir folder;
  Monitor node0({.log_dir = folder.path().string()});
  node0.begin({.world = {{0, 0, "alpha", "CPU", ""}, {1, 1, "beta", "CPU", ""}},
               .store = std::make_shared<store::MemoryStore>()});
  node0.end_attempt(Millis(0));
  EXPECT_THAT(json::parse(node0.state()).at("ranks").at(1).at("state").get<std::string>(), HasSubstr("not known"));
}

// An attempt after a change of the nodes is not a restart.
TEST(Monitor, OnlyFailuresCountAsRestarts) {
  const TempDir folder;
  Monitor monitor({.log_dir = folder.path().string()});
  monitor.begin({.number = 1, .world = {{.rank = 0, .host = "alpha"}}});
  EXPECT_EQ(json::parse(monitor.state()).at("restarts"), 0);
  monitor.end_attempt();
  monitor.set_restarts(1);
  monitor.begin({.number = 2, .world = {{.rank = 0, .host = "alpha"}}});
  EXPECT_EQ(json::parse(monitor.state()).at("restarts"), 1);
  EXPECT_EQ(json::parse(monitor.progress()).at("restarts"), 1);
  monitor.end_attempt();
  monitor.finish("success", 0, "");
  EXPECT_EQ(read_json(folder.path() / "progress.json").at("restarts"), 1);
}

// A long trace takes seconds to write; the supervisor must go on meanwhile.
TEST(Monitor, AnUpdateDoesNotWaitForTheTrace) {
  const TempDir folder;
  const auto store = std::make_shared<store::MemoryStore>();
  Monitor node0({.log_dir = folder.path().string(), .trace = StepRange{1, 3}});
  std::future<void> update;
  std::atomic<bool> updated = false;
  LogLines lines([&](const std::string& line) {
    if (line.find("lacks the last 17 spans") == std::string::npos) return;
    update = std::async(std::launch::async, [&] { node0.update({}, {}); });
    updated = update.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  });
  node0.begin({.world = {{0, 0, "alpha", "CPU", ""}, {1, 1, "beta", "CPU", ""}}, .store = store});
  LiveExchange node1({.store = store, .node = 1, .nodes = 2});
  node1.publish_trace(
      {.node = 1, .ranks = {{.rank = 1}}, .timelines = {{.rank = 1, .spans = {TimelineSpan()}, .left_out = 17}}});
  node1.finish(Deadline::in(std::chrono::seconds(20)));
  node0.end_attempt(std::chrono::seconds(20));
  node0.finish("success", 0, "");
  EXPECT_TRUE(updated) << lines.text();
  EXPECT_EQ(json::parse(node0.state()).at("trace"), (folder.path() / "trace.json").string());
}

TEST(Monitor, AnErrorOfItsThreadDoesNotEndTheLauncher) {
  const TempDir folder;
  LogLines lines;
  std::promise<void> thrown;
  bool first = true;
  Monitor monitor({.log_dir = folder.path().string(), .on_look = [&](const JobView&) {
                     if (std::exchange(first, false)) thrown.set_value();
                     throw std::bad_alloc();
                   }});
  monitor.begin(two_ranks(folder, nullptr));
  ASSERT_EQ(thrown.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  monitor.end_attempt();
  monitor.finish("success", 0, "");
  EXPECT_THAT(lines.text(), HasSubstr("miss an update: std::bad_alloc; the job goes on"));
  EXPECT_EQ(read_json(folder.path() / "live.json").at("state"), "success");
}

}  // namespace
}  // namespace trireme::launch
