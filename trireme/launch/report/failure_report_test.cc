#include "trireme/launch/report/failure_report.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/report/outcome.h"

namespace trireme::launch {
namespace {

using nlohmann::json;

WorkerEnding worker(int rank) {
  WorkerEnding ending;
  ending.rank = rank;
  ending.local_rank = rank;
  ending.host = "hosta";
  ending.pid = 1000 + rank;
  ending.log = "/log/workerlog." + std::to_string(rank);
  ending.seconds = 2.5;
  return ending;
}

WorkerEnding failed(int rank, int code, std::vector<std::string> lines = {}) {
  WorkerEnding ending = worker(rank);
  ending.ending.code = code;
  ending.last_lines = std::move(lines);
  return ending;
}

WorkerEnding stopped(int rank, int signal = SIGTERM) {
  WorkerEnding ending = worker(rank);
  ending.ending.exited = false;
  ending.ending.signal = signal;
  ending.stopped = true;
  return ending;
}

JobResult failure(std::vector<WorkerEnding> workers, int culprit = 1) {
  JobResult result;
  result.job_id = "night";
  result.outcome = Outcome::failure;
  result.exit_code = 7;
  result.culprit = culprit;
  result.workers = std::move(workers);
  result.started = JobResult::Time(std::chrono::milliseconds(1'700'000'000'250));
  result.ended = result.started + std::chrono::milliseconds(3500);
  return result;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(FailureScreen, ARankThatEndedEarlyIsTheHeadline) {
  WorkerEnding early = worker(1);
  early.ending = {};
  early.awaited_by = {0, 2};
  early.awaited_in = "new_group";
  const JobResult result = failure({worker(0), early, worker(2)});
  const std::string screen = failure_screen(result, false);
  EXPECT_TRUE(contains(screen, "Rank 1 on hosta ended with exit code 0 while ranks 0, 2 waited for it in new_group\n"))
      << screen;
  EXPECT_TRUE(contains(screen, "All ranks must make the same calls")) << screen;
  const auto culprit = nlohmann::json::parse(result_json(result)).at("culprit");
  EXPECT_EQ(culprit.at("cause"), "ended_early");
  EXPECT_EQ(culprit.at("exit_code"), 0);
  EXPECT_EQ(culprit.at("awaited_by"), nlohmann::json::array({0, 2}));
  EXPECT_EQ(culprit.at("awaited_in"), "new_group");
  EXPECT_EQ(worker_ending_from_json(to_json(early)), early);
}

TEST(FailureScreen, ARankThatMadeTheJobHangIsTheHeadline) {
  WorkerEnding culprit = stopped(1, SIGKILL);
  culprit.hang = "is stopped while rank 0 waits for it in all_reduce #17";
  culprit.hang_advice = "Let it go on.";
  culprit.hang_details = {"rank 0 waits", "stack of rank 1:"};
  const JobResult result = failure({stopped(0), culprit});
  const std::string screen = failure_screen(result, false);
  EXPECT_TRUE(contains(screen, "Rank 1 on hosta is stopped while rank 0 waits for it in all_reduce #17\n")) << screen;
  EXPECT_TRUE(contains(screen, "  > rank 0 waits\n  > stack of rank 1:\n")) << screen;
  EXPECT_TRUE(contains(screen, "Let it go on.")) << screen;
  EXPECT_TRUE(contains(screen, "rank 0: stopped because of rank 1")) << screen;
  const auto found = json::parse(result_json(result));
  EXPECT_EQ(found.at("culprit").at("cause"), "hang");
  EXPECT_EQ(found.at("culprit").at("details"), json::array({"rank 0 waits", "stack of rank 1:"}));
  EXPECT_EQ(worker_ending_from_json(to_json(culprit)), culprit);
  EXPECT_EQ(JobOutcome::of_culprit(culprit).exit_code, exit_code::kHang);
}

// The JSON library would make any int of it.
TEST(JobOutcome, ANumberThatIsNotWholeIsRefused) {
  std::string text = to_json(JobOutcome::abort("no disk", 71));
  EXPECT_EQ(outcome_from_json(text).exit_code, 71);
  text.replace(text.find("71"), 2, "1e100");
  EXPECT_THROW(outcome_from_json(text), PeerError);
}

TEST(FailureScreen, ARankThatWasLateOnAnotherNodeIsTheHeadline) {
  WorkerEnding late{.rank = 1, .host = "hostb", .log = "/b/workerlog.0"};
  late.awaited_by = {0, 2};
  late.awaited_in = "all_reduce";
  blame(late, "is running while ranks 0, 2 wait for it; ranks 0, 2 gave up", "Give them more time.",
        {"rank 1: running"});
  const JobResult result = failure({worker(0), late});
  const std::string screen = failure_screen(result, false);
  EXPECT_TRUE(contains(screen,
                       "Rank 1 on hostb is running while ranks 0, 2 wait for it; ranks 0, 2 gave up\n"
                       "  > rank 1: running\n  Log: /b/workerlog.0\n  Next step: Give them more time.\n"))
      << screen;
  const auto culprit = json::parse(result_json(result)).at("culprit");
  EXPECT_EQ(culprit.at("cause"), "late");
  EXPECT_EQ(culprit.at("awaited_by"), json::array({0, 2}));
  EXPECT_EQ(JobOutcome::of_culprit(late).exit_code, exit_code::kPeer);
}

TEST(FailureScreen, SaysItAll) {
  const JobResult result =
      failure({stopped(0), failed(1, 7, {"step 1", "bad thing"}), stopped(2), stopped(3, SIGKILL)});
  EXPECT_EQ(failure_screen(result, false),
            R"(--------------------------------------------------------------------------------
Rank 1 on hosta failed first: exit 7
  pid 1001, local rank 1, after 2.5 s
  Last 2 lines:
  | step 1
  | bad thing
  Log: /log/workerlog.1
The others:
  ranks 0, 2, 3: stopped because of rank 1 (SIGTERM; 1 needed SIGKILL)
Exit code 7
--------------------------------------------------------------------------------
)");
}

TEST(FailureScreen, ShowsTheLastThirtyLinesOnly) {
  std::vector<std::string> lines;
  for (int i = 0; i < 50; ++i) lines.push_back("line " + std::to_string(i));
  const std::string screen = failure_screen(failure({failed(1, 7, lines)}), false);
  EXPECT_TRUE(contains(screen, "Last 30 lines:"));
  EXPECT_FALSE(contains(screen, "| line 19\n"));
  EXPECT_TRUE(contains(screen, "| line 20\n"));
  EXPECT_TRUE(contains(screen, "| line 49\n"));
}

TEST(FailureScreen, AdviceAndEvidence) {
  const std::string screen =
      failure_screen(failure({failed(1, 1, {"h:1:1 [0] NCCL WARN no shm", "ncclSystemError: failed"})}), false);
  EXPECT_TRUE(contains(screen, "failed first: exit 1: NCCL error: ncclSystemError: failed\n")) << screen;
  EXPECT_TRUE(contains(screen, "  > h:1:1 [0] NCCL WARN no shm\n")) << screen;
  EXPECT_TRUE(contains(screen, "  Next step: Start again with NCCL_DEBUG=INFO")) << screen;
}

TEST(FailureScreen, ASilentWorker) {
  EXPECT_TRUE(contains(failure_screen(failure({failed(1, 7)}), false), "It wrote nothing."));
}

TEST(FailureScreen, EndingsOfTheirOwnAreGrouped) {
  const JobResult result = failure({worker(0), failed(1, 7), failed(2, 3), failed(3, 3), worker(4), stopped(5)});
  const std::string screen = failure_screen(result, false);
  EXPECT_TRUE(contains(screen, "  ranks 0, 4: finished\n")) << screen;
  EXPECT_TRUE(contains(screen, "  ranks 2, 3: exit 3\n")) << screen;
  EXPECT_TRUE(contains(screen, "  rank 5: stopped because of rank 1 (SIGTERM)\n")) << screen;
}

TEST(FailureScreen, UnkillableWorkersAreNamed) {
  JobResult result = failure({failed(1, 7), stopped(2)});
  result.workers[1].unkillable = true;
  result.exit_code = exit_code::kUnkillable;
  const std::string screen = failure_screen(result, false);
  EXPECT_TRUE(contains(screen, "rank 2: survived SIGKILL and was left behind: pid 1002 on hosta")) << screen;
  EXPECT_TRUE(contains(screen, "Exit code 74")) << screen;
}

TEST(FailureScreen, WithoutACulpritTheReasonIsTheHeadline) {
  JobResult result = failure({stopped(0)});
  result.culprit.reset();
  result.reason = "node 1 (hostb) does not answer";
  const std::string screen = failure_screen(result, false);
  EXPECT_TRUE(contains(screen, "Job night failed: node 1 (hostb) does not answer\n")) << screen;
  EXPECT_TRUE(contains(screen, "  rank 0: stopped (SIGTERM)\n")) << screen;
}

TEST(FailureScreen, AnInterruptionIsNotCalledAFailure) {
  JobResult result = failure({stopped(0)});
  result.culprit.reset();
  result.outcome = Outcome::interrupted;
  result.exit_code = 130;
  EXPECT_TRUE(contains(failure_screen(result, false), "Job night was interrupted\n")) << failure_screen(result, false);
  result.reason = "SIGTERM";
  EXPECT_TRUE(contains(failure_screen(result, false), "Job night was interrupted: SIGTERM\n"));
}

TEST(FailureScreen, ColourOnlyWhenAsked) {
  const JobResult result = failure({failed(1, 7, {"x"})});
  EXPECT_FALSE(contains(failure_screen(result, false), "\x1b"));
  EXPECT_TRUE(contains(failure_screen(result, true), "\x1b[1;31mRank 1 on hosta failed first: exit 7\x1b[0m"));
}

TEST(FailureScreen, LinesCannotHarmTheTerminalAndAreCut) {
  const std::string wide = std::string(399, 'x') + "\xe2\x82\xac and more";
  const std::string screen = failure_screen(failure({failed(1, 7, {"\x1b[2J", wide})}), false);
  EXPECT_TRUE(contains(screen, "| \\x1b[2J\n")) << screen;
  EXPECT_TRUE(contains(screen, "  | " + std::string(399, 'x') + " …\n")) << screen;
}

TEST(FailureScreen, ACulpritThatIsNotListedDoesNoHarm) {
  EXPECT_TRUE(contains(failure_screen(failure({stopped(0)}, 9), false), "stopped because of rank 9"));
}

// --- result.json

TEST(ResultJson, SaysTheSame) {
  JobResult result = failure({stopped(0), failed(1, 7, {"bad thing"})});
  result.restarts = 2;
  result.memberships = {{.attempt = 0, .hosts = {"a", "b"}, .ranks = 4, .why = "", .since = result.started},
                        {.attempt = 3, .hosts = {"a\x01"}, .ranks = 2, .why = "lost b", .since = result.ended}};
  const json object = json::parse(result_json(result));
  EXPECT_EQ(object.at("job_id"), "night");
  EXPECT_EQ(object.at("outcome"), "failure");
  EXPECT_EQ(object.at("exit_code"), 7);
  EXPECT_EQ(object.at("restarts"), 2);
  EXPECT_EQ(object.at("memberships").at(0).at("nodes"), json({"a", "b"}));
  EXPECT_EQ(object.at("memberships").at(1).at("attempt"), 3);
  EXPECT_EQ(object.at("memberships").at(1).at("ranks"), 2);
  EXPECT_EQ(object.at("memberships").at(1).at("why"), "lost b");
  EXPECT_EQ(object.at("memberships").at(1).at("since"), "2023-11-14T22:13:23.750Z");
  EXPECT_EQ(object.at("started"), "2023-11-14T22:13:20.250Z");
  EXPECT_EQ(object.at("ended"), "2023-11-14T22:13:23.750Z");
  EXPECT_EQ(object.at("seconds"), 3.5);
  const json& culprit = object.at("culprit");
  EXPECT_EQ(culprit.at("rank"), 1);
  EXPECT_EQ(culprit.at("host"), "hosta");
  EXPECT_EQ(culprit.at("pid"), 1001);
  EXPECT_EQ(culprit.at("cause"), "exit");
  EXPECT_EQ(culprit.at("words"), "exit 7");
  EXPECT_EQ(culprit.at("log"), "/log/workerlog.1");
  EXPECT_EQ(culprit.at("last_lines"), json::array({"bad thing"}));
}

TEST(ResultJson, EveryWorker) {
  JobResult result = failure({stopped(0), failed(1, 7), worker(2), stopped(3)});
  result.workers[3].unkillable = true;
  const json workers = json::parse(result_json(result)).at("workers");
  ASSERT_EQ(workers.size(), 4u);
  EXPECT_EQ(workers[0].at("cause"), "stopped");
  EXPECT_EQ(workers[0].at("signal"), SIGTERM);
  EXPECT_EQ(workers[0].at("exit_code"), 143);
  EXPECT_EQ(workers[1].at("cause"), "exit");
  EXPECT_TRUE(workers[1].at("signal").is_null());
  EXPECT_EQ(workers[2].at("cause"), "success");
  EXPECT_EQ(workers[3].at("cause"), "unkillable");
  EXPECT_TRUE(workers[3].at("exit_code").is_null());
}

TEST(ResultJson, SuccessHasNoCulprit) {
  JobResult result;
  result.workers = {worker(0)};
  const json object = json::parse(result_json(result));
  EXPECT_EQ(object.at("outcome"), "success");
  EXPECT_TRUE(object.at("culprit").is_null());
  result.outcome = Outcome::interrupted;
  EXPECT_EQ(json::parse(result_json(result)).at("outcome"), "interrupted");
}

TEST(ResultJson, AnyBytesGiveValidJson) {
  JobResult result = failure({failed(1, 1, {"\xff\xfe", std::string("nul\0", 4), "ValueError: \xc3"})});
  result.job_id = "\x80";
  result.workers[0].host = "\xc0\xaf";
  result.workers[0].log = "\xed\xa0\x80";
  const std::string text = result_json(result);
  EXPECT_TRUE(json::accept(text));
  EXPECT_EQ(json::parse(text).at("culprit").at("last_lines")[0], "\\xff\\xfe");
}

TEST(ResultJson, ThirtyLinesOnly) {
  const JobResult result = failure({failed(1, 7, std::vector<std::string>(100, "x"))});
  EXPECT_EQ(json::parse(result_json(result)).at("culprit").at("last_lines").size(), 30u);
}

// --- an ending on its way between nodes

TEST(WorkerEndingJson, RoundTrip) {
  WorkerEnding ending = stopped(3, SIGSEGV);
  ending.ending.core_dumped = true;
  ending.last_lines = {"a", "b"};
  EXPECT_EQ(worker_ending_from_json(to_json(ending)), ending);
}

TEST(WorkerEndingJson, NonsenseIsAPeerError) {
  for (const char* text : {"", "{", "{}", "[]", "7", "{\"ending\": 1}"})
    EXPECT_THROW(worker_ending_from_json(text), PeerError) << text;
  std::string text = to_json(worker(3));
  EXPECT_THROW(worker_ending_from_json(text.replace(text.find("\"rank\":3"), 8, "\"rank\":-1")), PeerError);
  text = to_json(worker(3));
  EXPECT_THROW(worker_ending_from_json(text.replace(text.find("\"code\":0"), 8, "\"code\":999")), PeerError);
  text = to_json(worker(3));
  EXPECT_THROW(worker_ending_from_json(text.replace(text.find("\"rank\":3"), 8, "\"rank\":1e99")), PeerError);
}

}  // namespace
}  // namespace trireme::launch
