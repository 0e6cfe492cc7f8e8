// How the launchers of a job agree on its end. The first outcome that any of them reports is the job's.
//
//   link.begin(attempt, objection);
//   link.report(JobOutcome::of_culprit(ending));       // or link.report_success() when all local workers are done
//   if (auto outcome = link.outcome()) …               // see wake_fds()
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/fd.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/launch/report/outcome.h"
#include "trireme/store/store.h"

namespace trireme::launch {

class JobLink {
 public:
  virtual ~JobLink() = default;
  /// Called repeatedly while begin() waits: a reason not to begin, if one comes before the deadline.
  using Objection = std::function<std::optional<JobOutcome>(Deadline)>;

  /// Starts an attempt (0, 1, 2 …): waits for `pause`, and until every node has ended the one before. With an
  /// objection, or when a node or the store is lost meanwhile, the attempt has its outcome() before it began. PeerError
  /// when a node is late.
  virtual void begin(int attempt, const Objection& objection, Millis pause) = 0;
  /// A failure on this node. Only the first report of all nodes counts.
  virtual void report(const JobOutcome& failure) = 0;
  /// This node's workers have all succeeded; the job has when every node says so.
  virtual void report_success() = 0;
  virtual std::optional<JobOutcome> outcome() = 0;
  /// Waits until every node has heard the outcome, or the deadline: the node that hosts the store must not end before.
  virtual void farewell(Deadline) {}
  /// One of these is readable when outcome() may have something new.
  virtual std::vector<int> wake_fds() const { return {}; }
};

/// A job of one node: it decides alone.
class SoloLink : public JobLink {
 public:
  void begin(int, const Objection& objection, Millis pause) override { outcome_ = objection(Deadline::in(pause)); }
  void report(const JobOutcome& failure) override {
    if (!outcome_) outcome_ = failure;
  }
  void report_success() override { report({}); }
  std::optional<JobOutcome> outcome() override { return outcome_; }

 private:
  std::optional<JobOutcome> outcome_;
};

/// Names of nodes whose launchers have gone, gathered from the store server's thread.
class LostNodes {
 public:
  LostNodes();
  void add(const std::string& name);
  std::vector<std::string> take();
  /// Whether it was ever added.
  bool contains(const std::string& name);
  /// Readable while names wait to be taken.
  int wake_fd() const { return wake_.get(); }

 private:
  Mutex mutex_;
  std::vector<std::string> names_ TRIREME_GUARDED_BY(mutex_);
  std::set<std::string> all_ TRIREME_GUARDED_BY(mutex_);
  UniqueFd wake_;
};

/// Several nodes: the outcome of attempt k is the key outcome/k of the job's store. One thread waits for it.
class StoreLink : public JobLink {
 public:
  struct Options {
    std::shared_ptr<Store> store;
    int nodes = 1;
    std::string coordinator;               // for messages: "node 0 (hosta) at 10.0.0.1:6069"
    std::shared_ptr<LostNodes> lost = {};  // only where the store's server runs
    std::function<std::optional<std::string>(const std::string&)> describe =
        {};                                                   // a lost node in words; nothing: not one of the job's
    std::function<std::optional<JobOutcome>()> revoked = {};  // asked often: why this coordinator was replaced
    Millis attempt_timeout{60'000};  // for all nodes to begin the next attempt; must exceed their grace and pauses
  };
  explicit StoreLink(Options options);
  /// Where the outcome of an attempt is, for a node that is not yet part of the job.
  static std::string outcome_key(int attempt);
  ~StoreLink() override;

  void begin(int attempt, const Objection& objection, Millis pause) override;
  void report(const JobOutcome& failure) override;
  void report_success() override;
  std::optional<JobOutcome> outcome() override;
  void farewell(Deadline deadline) override;
  std::vector<int> wake_fds() const override;

 private:
  std::string key(const std::string& name) const;
  void wait_for_everyone(const Objection& objection, Deadline not_before);
  void call_off(const JobOutcome& outcome);
  std::optional<JobOutcome> loss();
  JobOutcome loss_of_store(const std::exception& error) const;
  void wait_for_outcome();
  void settle(const JobOutcome& outcome, bool guessed = false);
  bool known();
  void end_attempt();

  Options options_;
  int attempt_ = -1;
  UniqueFd wake_;
  std::thread waiter_;
  std::atomic<bool> ending_ = false;  // the waiter shall stop waiting
  Mutex mutex_;
  std::optional<JobOutcome> outcome_ TRIREME_GUARDED_BY(mutex_);
  bool guessed_ TRIREME_GUARDED_BY(mutex_) = false;  // the store was gone: other nodes may see it otherwise
};

}  // namespace trireme::launch
