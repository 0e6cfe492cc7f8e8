// The ranks of one group in Gloo: how they connect, how an operation is waited for in a way that abort() can end, and
// which rank is blamed when one fails. Gloo reports a closed connection or a timeout, but no culprit.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/comm/abort_notice.h"
#include "trireme/comm/backends/gloo.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::comm {

class GlooConnection {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Start = std::function<WorkPtr()>;

  /// Meets the other ranks. PeerError when one does not come.
  GlooConnection(std::shared_ptr<Store> store, const GlooOptions& options);
  ~GlooConnection();
  GlooConnection(const GlooConnection&) = delete;
  GlooConnection& operator=(const GlooConnection&) = delete;

  c10d::ProcessGroupGloo& group() { return *group_; }

  /// Starts a collective and waits for it. Memory that Gloo works on must be the tensors' own: an operation that was
  /// given up may still be under way inside Gloo.
  void run(const Start& start);
  /// The same for a message; Gloo ends these itself.
  void pass(const Start& start);
  /// Ends what is under way, here and on the others. The first blame stays.
  void abort(const Blame& blame);

 private:
  using Pg = c10d::ProcessGroupGloo;
  // Outlives this object, in Gloo's callbacks.
  struct Signal {
    Mutex mutex;
    std::condition_variable ended;
  };

  void connect();
  bool end(const Blame& blame);
  void stop_if_aborted();
  template <typename F>
  void guarded(const F& f);
  void note_leaving() noexcept;
  std::string left_key(int rank) const;
  Blame find_leavers() noexcept;
  Blame find_culprit();
  Blame await_culprit();
  [[noreturn]] void fail(const std::string& reason, bool timed_out);

  const GlooOptions options_;
  const std::shared_ptr<Store> store_;
  c10::intrusive_ptr<Pg> group_;
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  Mutex& mutex_ = signal_->mutex;
  std::condition_variable& ended_ = signal_->ended;
  std::set<WorkPtr> messages_ TRIREME_GUARDED_BY(mutex_);
  Blame blame_ TRIREME_GUARDED_BY(mutex_);
  std::atomic<bool> aborted_ = false;  // written under mutex_
  AbortNotice notice_;                 // the last: its thread uses all the others
};

}  // namespace trireme::comm
