// Ranks as processes: they work together, and when one is killed or stopped the others say so and nothing stays.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "trireme/comm/engine/shm/identity.h"
#include "trireme/comm/engine/shm/test_ranks.h"
#include "trireme/core/text.h"
#include "trireme/store/tcp_client.h"
#include "trireme/store/tcp_server.h"

namespace trireme::comm::shm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// One shm_test_rank.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments) {
    FdPair output = make_pipe();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, output.second.get(), STDOUT_FILENO);
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("shm_test_rank");
    std::vector<std::string> words = {program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), nullptr) != 0)
      ADD_FAILURE() << "cannot start " << program;
    ::posix_spawn_file_actions_destroy(&actions);
    output_ = std::move(output.first);
  }
  ~Process() {
    signal(SIGKILL);
    wait();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  /// The next line it prints; "" at its end.
  std::string line() {
    std::string text;
    char letter = 0;
    while (wait_readable(output_.get(), Deadline::in(50s)) && ::read(output_.get(), &letter, 1) == 1 && letter != '\n')
      text += letter;
    return text;
  }
  int wait() {
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
};

class Job {
 public:
  struct Options {
    int ranks = 3;
    Millis timeout{50000};
    std::string files = "anonymous";
    int started = 99;  // of them, from rank 0
  };

  Job(const std::vector<std::string>& what, const Options& options) {
    for (int rank = 0; rank < std::min(options.ranks, options.started); ++rank) {
      std::vector<std::string> words = {to_string(server_.endpoint()),
                                        to_hex(token_.bytes()),
                                        std::to_string(rank),
                                        std::to_string(options.ranks),
                                        std::to_string(options.timeout.count()),
                                        options.files};
      words.insert(words.end(), what.begin(), what.end());
      ranks_.push_back(std::make_unique<Process>(words));
    }
  }
  Process& rank(size_t number) { return *ranks_.at(number); }
  size_t size() const { return ranks_.size(); }
  std::unique_ptr<store::TcpStore> store() const {
    return store::TcpStore::connect({.server = server_.endpoint(), .token = token_}, Deadline::in(20s));
  }
  void expect_line(const std::string& text) {
    for (const auto& process : ranks_) EXPECT_EQ(process->line(), text);
  }

 private:
  const Token token_ = Token::random();
  store::TcpStoreServer server_{listen_tcp("127.0.0.1", 0), {.token = token_}};
  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST(Processes, MoreRanksThanProcessorsAgree) {
  Job job({"check", "20"}, {.ranks = 8});
  job.expect_line("checked");
  for (size_t rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.rank(rank).wait(), 0);
}

TEST(Processes, NamedMemoryWorksAndLeavesNothing) {
  Job job({"ring"}, {.ranks = 2, .files = "named"});
  job.expect_line("running");
  EXPECT_TRUE(testing::nothing_left()) << "its name goes while the job runs";
}

class Killed : public ::testing::TestWithParam<const char*> {};

void kill_one(const char* collective, size_t victim) {
  Job job({collective}, {});
  job.expect_line("running");
  const std::string culprit = fmt::format("rank {} (process {}) died", victim, job.rank(victim).pid());
  const auto begin = Clock::now();
  job.rank(victim).signal(SIGKILL);
  for (size_t rank = 0; rank < job.size(); ++rank) {
    if (rank == victim) continue;
    EXPECT_THAT(job.rank(rank).line(), AllOf(HasSubstr(culprit), HasSubstr(" #")));
    EXPECT_LT(Clock::now() - begin, testing::kSanitized ? 5s : 1s);
    EXPECT_EQ(job.rank(rank).wait(), exit_code::kPeer);
  }
}

TEST_P(Killed, InTheMiddleIsNamedByTheOthersWithinASecond) {
  for (const size_t victim : {0u, 1u, 2u}) kill_one(GetParam(), victim);
  EXPECT_TRUE(testing::nothing_left());
}

INSTANTIATE_TEST_SUITE_P(Collectives, Killed,
                         ::testing::Values("barrier", "all_reduce", "all_reduce_in_arena", "small_all_reduce",
                                           "broadcast", "all_gather", "reduce_scatter", "reduce", "gather", "scatter",
                                           "all_to_all", "ring"));

TEST(Processes, AStoppedRankIsReportedByTheTimeout) {
  Job job({"all_reduce"}, {.timeout = Millis(testing::kSanitized ? 2000 : 500)});
  job.expect_line("running");
  job.rank(1).signal(SIGSTOP);
  const std::string culprit = fmt::format("rank 1 (process {}) lives but has not come", job.rank(1).pid());
  EXPECT_THAT(job.rank(0).line(), HasSubstr(culprit));
  EXPECT_THAT(job.rank(2).line(), HasSubstr(culprit));
  job.rank(1).signal(SIGCONT);
  EXPECT_EQ(job.rank(1).wait(), exit_code::kPeer) << "it finds the group aborted when it goes on";
}

// Rank 0 is killed when it has made the memory and before anyone has attached.
TEST(Processes, KilledWhileMeetingLeavesNothing) {
  Job job({"barrier"}, {.ranks = 2, .started = 1});
  const auto store = job.store();
  store->set("shm/world/identity/1", encode(this_process()));
  const std::string path = store->get("shm/world/segment/0/path", Deadline::in(50s));
  EXPECT_TRUE(open_segment(path));
  job.rank(0).signal(SIGKILL);
  job.rank(0).wait();
  EXPECT_THROW(open_segment(path), SystemError);
  EXPECT_TRUE(testing::nothing_left());
}

// Rank 1 dies after the memory was agreed on and before its first operation.
TEST(Processes, KilledBeforeTheFirstOperationIsNamed) {
  Job job({"barrier"}, {.ranks = 2, .started = 1});
  const auto store = job.store();
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ProcessIdentity identity = this_process();
  identity.pid = child;
  identity.start_time = start_time_of(child).value();
  store->set("shm/world/identity/1", encode(identity));
  store->set("shm/world/segment/0/1", "go");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(job.rank(0).line(), HasSubstr(fmt::format("rank 1 (process {}) died", child)));
}

// Rank 1 is a process with the identity of another machine.
TEST(Processes, OnTwoHostsRefuseToShare) {
  Job job({"barrier"}, {.ranks = 2, .started = 1});
  ProcessIdentity elsewhere = this_process();
  elsewhere.host.boot_id = "elsewhere";
  job.store()->set("shm/world/identity/1", encode(elsewhere));
  EXPECT_THAT(job.rank(0).line(), AllOf(HasSubstr("ranks 0 and 1 cannot share memory"), HasSubstr("elsewhere")));
  EXPECT_EQ(job.rank(0).wait(), exit_code::kUsage);
}

}  // namespace
}  // namespace trireme::comm::shm
