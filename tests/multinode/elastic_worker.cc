// A worker whose job may change its nodes: it takes samples in steps, all ranks together, and writes down which ones it
// took. No tensors.
//
//   elastic_worker FOLDER SAMPLES
//
// FOLDER is shared by all nodes. FOLDER/history has a line for each committed step: its attempt, world size and samples.
// That file is the checkpoint too: an attempt begins where it ends. All ranks announce a step in the job's store; rank 0
// commits it when all have, so a step that a departure interrupts is no step. A step takes 20 ms.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "trireme/core/deadline.h"
#include "trireme/core/error.h"
#include "trireme/core/preemption.h"
#include "trireme/store/job.h"
#include "trireme/store/store.h"

using namespace trireme;

namespace {

constexpr std::chrono::seconds kPatience(60);

// The samples that the lines of the history name: each line ends in "first-last".
int samples_done(const std::filesystem::path& history) {
  std::ifstream in(history);
  int done = 0;
  for (std::string line; std::getline(in, line);) done = std::stoi(line.substr(line.rfind('-') + 1)) + 1;
  return done;
}

void commit(const std::filesystem::path& history, const std::string& line) {
  std::ofstream out(history, std::ios::app);
  out << line << std::endl;
}

class Training {
 public:
  Training(Job job, std::filesystem::path folder, int samples)
      : job_(std::move(job)), folder_(std::move(folder)), samples_(samples), notice_({SIGTERM}) {}

  void run() {
    const ParallelEnv& env = job_.env;
    if (env.rank == 0) job_.store->set(key("begin"), std::to_string(samples_done(history())));
    int next = std::stoi(wait_for("begin"));
    while (next < samples_ && !stop_) next = step(next);
    if (stop_) std::cout << "stopped after sample " << next - 1 << std::endl;
  }

 private:
  // Every rank takes one sample; rank 0 decides for all whether this was the last step.
  int step(int next) {
    const ParallelEnv& env = job_.env;
    const int end = std::min(next + env.world_size, samples_);
    const std::string name = fmt::format("step/{}", next);
    if (notice_.received()) job_.store->set(key("stop"), "");
    if (job_.store->add(key(name), 1) == env.world_size) job_.store->set(key(name + "/all"), "");
    wait_for(name + "/all");
    if (env.rank == 0) {
      work();
      commit(history(), fmt::format("{} {} {}-{}", env.restart_count, env.world_size, next, end - 1));
      const bool stop = notice_.received() || job_.store->try_get(key("stop")).has_value();
      job_.store->set(key(name + "/done"), stop ? "stop" : "go on");
    }
    stop_ = wait_for(name + "/done") == "stop";
    return end;
  }

  void work() {
    // layers: sleep ok, because this is the work
    ::poll(nullptr, 0, 20);
  }

  std::string wait_for(const std::string& name) { return job_.store->get(key(name), Deadline::in(kPatience)); }
  std::string key(const std::string& name) const { return fmt::format("worker/{}/{}", job_.env.restart_count, name); }
  std::filesystem::path history() const { return folder_ / "history"; }

  const Job job_;
  const std::filesystem::path folder_;
  const int samples_;
  const PreemptionNotice notice_;
  bool stop_ = false;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  Training(connect_job({.strict = true}), argv[1], std::stoi(argv[2])).run();
} catch (const Error& error) {
  std::cerr << error.what() << std::endl;
  return error.exit_code();
}
