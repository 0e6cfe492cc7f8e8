// Text, environment, files, descriptors, log and deadlines.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "trireme/core/cpu_probe.h"
#include "trireme/core/deadline.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/file.h"
#include "trireme/core/gpu_driver.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using Parts = std::vector<std::string>;

TEST(Text, Split) {
  EXPECT_EQ(split("a,b,,c", ','), (Parts{"a", "b", "", "c"}));
  EXPECT_EQ(split("a", ','), (Parts{"a"}));
  EXPECT_EQ(split(",", ','), (Parts{"", ""}));
  EXPECT_EQ(split("", ','), Parts{});
}

TEST(Text, RanksAsRangesAndSingles) {
  EXPECT_EQ(rank_list({7, 2, 3, 4, 0, 5, 6}), "0, 2-7");
  EXPECT_EQ(rank_list({1, 2}), "1, 2");
  EXPECT_EQ(rank_list({3}), "3");
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(ranks_words({3}), "rank 3");
  EXPECT_EQ(ranks_words({3, 1}), "ranks 1, 3");
}

TEST(Text, JoinIsTheOppositeOfSplit) {
  EXPECT_EQ(join({"a", "", "c"}, ","), "a,,c");
  EXPECT_EQ(join({}, ","), "");
  EXPECT_EQ(join_some({"a", "b", "c"}, 3), "a, b, c");
  EXPECT_EQ(join_some({"a", "b", "c"}, 1, "; "), "a and 2 more");
}

TEST(Text, Trim) {
  EXPECT_EQ(trim("  a b\t\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, LowerAndHex) {
  EXPECT_EQ(to_lower("CamelCASE_1"), "camelcase_1");
  EXPECT_EQ(to_hex(std::string("\x00\x0f\xff", 3)), "000fff");
}

TEST(Text, ParseIntTakesWholeNumbersInRangeOnly) {
  EXPECT_EQ(parse_int("17", 0, 20), 17);
  EXPECT_EQ(parse_int("-3", -5, 5), -3);
  EXPECT_EQ(parse_int("0", 0, 0), 0);
  for (const char* wrong : {"", " 1", "1 ", "+1", "1.0", "0x1", "21", "-1", "99999999999999999999"})
    EXPECT_FALSE(parse_int(wrong, 0, 20)) << wrong;
}

TEST(Text, HexRealIsWhatFmtHasWritten) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, 0.75, -0.1, 1e300, 5e-324, kInfinity, -kInfinity})
    EXPECT_EQ(parse_hex_real(fmt::format("{:a}", value)), value);
  EXPECT_TRUE(std::isnan(parse_hex_real("nan").value()));
  for (const char* text : {"", "some", "0.75", "0x", "0x1.8p-1 ", "--0x1p0", "-0x-1p0", "0x1,8p0", "none"})
    EXPECT_EQ(parse_hex_real(text), std::nullopt) << text;
}

TEST(Gpu, IsWantedWhereTheLauncherOrADriverSaysSoAndNothingAgainstIt) {
  EXPECT_TRUE(is_gpu_wanted({.has_driver = true}));
  EXPECT_FALSE(is_gpu_wanted({.has_driver = false}));
  EXPECT_TRUE(is_gpu_wanted({.selected_gpus = "0", .cuda_visible_devices = "-1", .has_driver = false}));
  EXPECT_TRUE(is_gpu_wanted({.selected_gpus = "", .cuda_visible_devices = "1", .has_driver = true}));
  EXPECT_FALSE(is_gpu_wanted({.selected_gpus = "", .has_driver = false}));
  EXPECT_FALSE(is_gpu_wanted({.cuda_visible_devices = "-1", .has_driver = true}));
  EXPECT_FALSE(is_gpu_wanted({.paddle_backend = "gloo", .has_driver = true}));
}

TEST(Text, ClosestFindsLikelySlips) {
  const Parts names = {"nproc_per_node", "nnodes", "master"};
  EXPECT_EQ(closest("nproc_per_nod", names), "nproc_per_node");
  EXPECT_EQ(closest("mastre", names), "master");
  EXPECT_EQ(closest("trian", {"train", "drain"}), "train");  // letters exchanged are one slip
  EXPECT_EQ(closest("moedl", {"modem", "model"}), "model");
  EXPECT_FALSE(closest("gpus", names));
  EXPECT_FALSE(closest("x", {}));
}

TEST(Text, PrintableKeepsTextAndShowsTheRest) {
  EXPECT_EQ(printable("caf\xc3\xa9\t\xe2\x82\xac \xf0\x9f\x9a\xa3"), "caf\xc3\xa9\t\xe2\x82\xac \xf0\x9f\x9a\xa3");
  EXPECT_EQ(printable("a\x1b[31mb\r\n"), "a\\x1b[31mb\\x0d\\x0a");
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable_lines("a\x1b\nb\n"), "a\\x1b\nb\n");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // a control character of Latin 1
}

TEST(Text, PrintableShowsBrokenUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                             // cut short
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
}

TEST(Errors, EachKindHasItsExitCodeAndWords) {
  const UsageError usage("--gpus {}: not visible", 9);
  EXPECT_EQ(usage.exit_code(), 2);
  EXPECT_STREQ(usage.what(), "--gpus 9: not visible");
  EXPECT_EQ(PeerError("rank {}", 1).exit_code(), 75);
  const SystemError system(ENOENT, "cannot open {}", "x");
  EXPECT_EQ(system.exit_code(), 71);
  EXPECT_EQ(system.number(), ENOENT);
  EXPECT_STREQ(system.what(), "cannot open x: No such file or directory");
}

TEST(Errors, FactsOfAPeerErrorAreFields) {
  const PeerError simple("rank {} died", 3);
  EXPECT_EQ(simple.rank(), std::nullopt) << "a text alone blames nobody";
  EXPECT_EQ(simple.reason(), "rank 3 died");
  const PeerError error({.rank = 3, .operation = "all_reduce", .sequence = 42, .group = "0-3#0", .reason = "it died"},
                        "rank 1: all_reduce #42: it died");
  EXPECT_EQ(error.rank(), 3);
  EXPECT_EQ(error.operation(), "all_reduce");
  EXPECT_EQ(error.sequence(), 42u);
  EXPECT_EQ(error.group(), "0-3#0");
  EXPECT_EQ(error.reason(), "it died");
  EXPECT_STREQ(error.what(), "rank 1: all_reduce #42: it died");
}

TEST(Errors, ASystemErrorKnowsItsTextWithoutErrno) {
  const SystemError error(ENOENT, "cannot open {}", "x");
  EXPECT_STREQ(error.what(), "cannot open x: No such file or directory");
  EXPECT_EQ(error.subject(), "cannot open x");
}

TEST(Env, ListedVariablesCanBeRead) {
  env::set("TRIREME_STRICT", "1");
  EXPECT_EQ(env::get("TRIREME_STRICT"), "1");
  env::set("TRIREME_STRICT", "");
  EXPECT_EQ(env::get("TRIREME_STRICT"), "");
  EXPECT_FALSE(env::get_nonempty("TRIREME_STRICT"));
  env::set("TRIREME_STRICT", std::nullopt);
  EXPECT_FALSE(env::get("TRIREME_STRICT"));
}

TEST(Env, UnlistedVariablesCannot) {
  EXPECT_THROW(env::get("NOT_DOCUMENTED"), std::logic_error);
}

TEST(Env, TheTableNamesEachVariableOnceAndExplainsIt) {
  std::set<std::string> names;
  for (const env::Variable& variable : env::variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_GT(std::string_view(variable.meaning).size(), 5u) << variable.name;
  }
}

TEST(Env, AllHoldsValuesWithEqualSigns) {
  env::set("TRIREME_STRICT", "a=b");
  const auto all = env::all();
  EXPECT_NE(std::find(all.begin(), all.end(), std::pair<std::string, std::string>("TRIREME_STRICT", "a=b")), all.end());
  env::set("TRIREME_STRICT", std::nullopt);
}

TEST(File, WhatIsWrittenIsRead) {
  const TempDir folder;
  const std::string content("zero\0byte", 9);
  write_file_atomically(folder.path() / "a", "old and longer than the new");
  write_file_atomically(folder.path() / "a", content);
  EXPECT_EQ(read_file(folder.path() / "a"), content);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "a temporary file was left";
}

/// Threads here, containers in life: who shares the folder may have the same process number.
TEST(File, WritersOfOneFileDoNotMeet) {
  const TempDir folder;
  const auto file = folder.path() / "a";
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'})
    writers.emplace_back([&file, letter] {
      for (int i = 0; i < 50; ++i)
        EXPECT_NO_THROW(write_file_atomically(file, std::string(100'000, letter), {.durable = false}));
    });
  for (std::thread& writer : writers) writer.join();
  const std::string content = read_file(file).value_or("none");
  EXPECT_EQ(content, std::string(100'000, content[0]));
}

TEST(File, MoreThanTheLimitIsAnErrorNotHalfAFile) {
  const TempDir folder;
  const auto file = folder.path() / "a";
  write_file_atomically(file, std::string(100'000, 'x'));
  EXPECT_EQ(read_file(file, 100'000)->size(), 100'000u);
  for (const size_t limit : {size_t{0}, size_t{1000}, size_t{99'999}}) {
    try {
      read_file(file, limit);
      FAIL() << limit;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()),
                fmt::format("the file {} has 100000 bytes; at most {} are read", file.string(), limit));
    }
  }
  EXPECT_THROW(read_file("/dev/zero", 10), UsageError);
}

TEST(File, AHeadEndsAtItsSize) {
  const TempDir folder;
  write_file_atomically(folder.path() / "a", std::string(100'000, 'x'));
  EXPECT_EQ(read_head(folder.path() / "a", 1000)->size(), 1000u);
  EXPECT_EQ(read_head(folder.path() / "a", 1 << 20)->size(), 100'000u);
  EXPECT_FALSE(read_head("/nonexistent/file", 1));
}

TEST(File, UnreadableIsNothing) {
  EXPECT_FALSE(read_file("/nonexistent/file"));
  EXPECT_FALSE(read_file("/"));
}

TEST(File, UnwritableIsASystemErrorThatNamesThePath) {
  try {
    write_file_atomically("/nonexistent/file", "x");
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.number(), ENOENT);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/file"), std::string::npos);
  }
}

TEST(File, TempDirIsPrivateAndRemovesItself) {
  std::filesystem::path path;
  {
    const TempDir folder("prefix");
    path = folder.path();
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    EXPECT_TRUE(path.filename().string().starts_with("prefix-"));
    std::filesystem::create_directories(path / "deep" / "er");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Fd, ClosesItselfAndMoves) {
  FdPair pipe = make_pipe();
  const int number = pipe.first.get();
  EXPECT_TRUE(::fcntl(number, F_GETFD) & FD_CLOEXEC);
  UniqueFd other = std::move(pipe.first);
  EXPECT_FALSE(pipe.first);
  EXPECT_EQ(other.get(), number);
  other.reset();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(Fd, WaitsUntilReadableOrTheDeadline) {
  const FdPair pipe = make_pipe();
  EXPECT_FALSE(wait_readable(pipe.first.get(), Deadline::in(1ms)));
  ASSERT_TRUE(write_all(pipe.second.get(), "x"));
  EXPECT_TRUE(wait_readable(pipe.first.get(), Deadline::never()));
  EXPECT_TRUE(wait_writable(pipe.second.get(), Deadline::in(1s)));
}

// The position is shared between all who inherit the file, so they read at offset 0 and not "from here on".
TEST(Fd, MemoryFileIsReadAtOffsetZeroByAll) {
  const UniqueFd file = make_memory_file("test", "secret");
  for (int reader = 0; reader < 2; ++reader) {
    char buffer[16];
    ASSERT_EQ(::pread(file.get(), buffer, sizeof buffer, 0), 6);
    EXPECT_EQ(std::string(buffer, 6), "secret");
  }
}

class Log : public testing::Test {
 protected:
  void SetUp() override {
    before_ = set_log_sink([this](LogLevel level, std::string_view text) { seen_.emplace_back(level, text); });
  }
  void TearDown() override {
    set_log_sink(before_);
    set_log_level(LogLevel::info);
  }
  std::vector<std::pair<LogLevel, std::string>> seen_;
  LogSink before_;
};

TEST_F(Log, GoesToTheSinkFromTheLevelUp) {
  log_debug("not seen");
  log_info("rank {} of {}", 1, 2);
  set_log_level(LogLevel::error);
  log_warning("not seen");
  log_error("seen");
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[0], std::pair(LogLevel::info, std::string("rank 1 of 2")));
  EXPECT_EQ(seen_[1], std::pair(LogLevel::error, std::string("seen")));
}

TEST_F(Log, OffIsOff) {
  set_log_level(LogLevel::off);
  log_error("not seen");
  EXPECT_TRUE(seen_.empty());
}

TEST_F(Log, SetSinkReturnsTheOneBefore) {
  LogSink ours = set_log_sink(nullptr);
  log_error("to nobody");
  ours(LogLevel::info, "direct");
  EXPECT_EQ(seen_.size(), 1u);
}

// In a process of its own, since the variable is read once.
void log_with(const char* variable) {
  env::set("TRIREME_LOG_LEVEL", variable);
  set_default_log_level(LogLevel::debug);
  log_debug("fine");
  log_warning("odd");
  log_error("bad");
  std::exit(0);
}

TEST(LogDeathTest, TheVariableSetsTheLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ends_well = testing::ExitedWithCode(0);
  EXPECT_EXIT(log_with("error"), ends_well,
              testing::AllOf(testing::HasSubstr("bad"), testing::Not(testing::HasSubstr("odd"))));
  EXPECT_EXIT(log_with("OFF"), ends_well, testing::IsEmpty());
  EXPECT_EXIT(log_with(""), ends_well, testing::HasSubstr("fine"));
  EXPECT_EXIT(log_with("loud"), ends_well,
              testing::AllOf(testing::HasSubstr("\"loud\" is not known; use debug, info"), testing::HasSubstr("fine")));
}

TEST(LogLevels, NamesAndPythonsNumbers) {
  EXPECT_EQ(parse_log_level("DEBUG"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("20"), LogLevel::info);
  EXPECT_EQ(parse_log_level("warn"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("CRITICAL"), LogLevel::error);
  EXPECT_EQ(parse_log_level("off"), LogLevel::off);
  EXPECT_THROW(parse_log_level("loud"), UsageError);
}

TEST(Deadlines, PassAndTellWhatIsLeft) {
  EXPECT_TRUE(Deadline::in(0ms).passed());
  EXPECT_EQ(Deadline::in(-5s).left(), 0ms);
  EXPECT_EQ(Deadline::in(-5s).poll_timeout(), 0);
  const Deadline later = Deadline::in(1h);
  EXPECT_FALSE(later.passed());
  EXPECT_GT(later.left(), 59min);
  EXPECT_LE(later.left(), 1h);
}

TEST(Deadlines, NeverIsNever) {
  EXPECT_TRUE(Deadline::never().is_never());
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::never().poll_timeout(), -1);
}

TEST(Deadlines, ALongWaitFitsIntoPoll) {
  EXPECT_EQ(Deadline::in(std::chrono::hours(24 * 365)).poll_timeout(), INT_MAX);
}

TEST(Deadlines, TheEarlierOfTwo) {
  const Deadline soon = Deadline::in(1s);
  EXPECT_EQ(earlier(soon, Deadline::never()).time(), soon.time());
  EXPECT_EQ(earlier(Deadline::in(1h), soon).time(), soon.time());
}

TEST(CpuProbe, SurvivesItsOwnTest) {
  EXPECT_EQ(amx_is_broken(), amx_is_broken());
  EXPECT_GE(usable_cores(), 1);
}

// In a new process, so that the answer is not one from the cache.
TEST(CpuProbeDeathTest, AnswersTheSameWhereChildrenAreNotWaitedFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto probe = [] {
    ::signal(SIGCHLD, SIG_IGN);
    ::_exit(amx_is_broken() ? 1 : 0);
  };
  EXPECT_EXIT(probe(), testing::ExitedWithCode(amx_is_broken() ? 1 : 0), "");
}

TEST(CpuProbe, LeavesTheUsersWishAlone) {
  const auto before = env::get("ONEDNN_MAX_CPU_ISA");
  env::set("ONEDNN_MAX_CPU_ISA", "AVX2");
  avoid_broken_amx();
  EXPECT_EQ(env::get("ONEDNN_MAX_CPU_ISA"), "AVX2");
  env::set("ONEDNN_MAX_CPU_ISA", "");
  avoid_broken_amx();
  EXPECT_EQ(env::get("ONEDNN_MAX_CPU_ISA"), amx_is_broken() ? kCpuWithoutAmx : "");
  env::set("ONEDNN_MAX_CPU_ISA", before.value_or(""));
}

}  // namespace
}  // namespace trireme
