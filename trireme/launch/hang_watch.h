// The launcher's look at ranks that wait or do not move: says after 10 s which rank waits for which, gives a verdict at
// --hang_timeout (watch/verdict.h, watch/stillness.h), and tells the supervisor when the job is proven to hang.
//
//   HangWatch hangs({.timeout = request.hang_timeout, .rings = rings});
//   hangs.look(workers, Clock::now());                   // in every turn of the loop; it looks once a second
//   if (auto hang = hangs.take_proven()) …               // end the job
//
// Nothing here waits, except for a debugger that must be ended (look() and release(), up to 1 s), and nothing ends a
// process of the job. On several machines the
// launchers show each other their ranks (nodes/rank_views.h); the one whose rank is the culprit ends the job.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/parallel_env.h"
#include "trireme/launch/live/rank_rings.h"
#include "trireme/launch/nodes/rank_views.h"
#include "trireme/launch/stack_dump.h"
#include "trireme/watch/verdict.h"

namespace trireme::launch {

/// What the supervisor knows about one of its workers.
struct WatchedWorker {
  int pid = 0;  // 0: not started yet, or ended
  bool ended = false;
  bool succeeded = false;
};

/// A proven hang of which a rank of this node is the cause.
struct ProvenHang {
  size_t worker = 0;  // its place on this node
  std::string fault;
  std::string advice;
  std::vector<std::string> details;
};

class HangWatch {
 public:
  struct Options {
    Millis timeout{60'000};                           // 0: off
    std::shared_ptr<const RankRings> rings = {};      // of this node, in the order of its workers; null: off
    std::optional<RankViews::Options> others = {};    // nothing: one machine
    int world_size = 0;                               // of the job; 0: the ranks of `rings` alone
    Millis group_timeout = ParallelEnv{}.pg_timeout;  // after which ranks give up waiting
    Millis link_timeout = Millis::max();              // after which a link between machines counts as cut
  };
  explicit HangWatch(Options options);
  ~HangWatch();

  bool on() const { return !locals_.empty(); }

  void look(const std::vector<WatchedWorker>& workers, Clock::time_point now);
  /// When to look again.
  Deadline next() const;
  /// Once.
  std::optional<ProvenHang> take_proven();
  /// Ends the debugger that reads a stack: a rank that it holds cannot end. True when there was one; its rank may be
  /// stopped now and needs SIGCONT.
  bool release();
  /// Nodes that should be tried: their launchers answer through the store, and a rank of this node waits.
  std::vector<int> nodes_to_try(Clock::time_point now) const;
  /// Why a rank of this node gave up waiting at that time: the verdict of the looks before, when it waited and another
  /// rank was the culprit.
  std::optional<watch::Verdict> blame_for(int victim, Clock::time_point gave_up) const;
  /// Of the last look: who waits for whom, from 10 s on, or that nothing moves.
  const watch::Verdict& verdict() const { return verdict_; }

 private:
  struct Local {
    const watch::Ring* ring;
    watch::RankSnapshot last = {};
    std::optional<Clock::time_point> stopped_since = {};
  };
  /// A verdict on short waits: ranks that give up waiting wait no more, and cannot be judged then.
  struct Blame {
    watch::Verdict verdict;
    Clock::time_point when;
    Clock::time_point since;  // the victim has waited
  };
  /// A verdict whose stack is being read.
  struct Pending {
    watch::Verdict verdict;
    Clock::time_point due;
    std::unique_ptr<StackDump> stack;  // null: none is read
    std::optional<size_t> worker;      // the culprit's, when it is one of this node
  };
  struct Said {
    Clock::time_point again;
    Millis interval;
  };

  std::vector<watch::RankSnapshot> snapshots(const std::vector<WatchedWorker>& workers, Clock::time_point now);
  static int writer_of(const Local& local, const WatchedWorker& worker);
  void update(Local& local, const WatchedWorker& worker, Clock::time_point now);
  watch::Verdict judge_after(Millis time, const std::vector<watch::RankSnapshot>& ranks) const;
  bool concerns_others(const std::vector<watch::RankSnapshot>& ranks) const;
  std::optional<size_t> place_of(std::optional<int> rank) const;
  void note_blame(const std::vector<watch::RankSnapshot>& ranks, Clock::time_point now);
  void say_stack_of_others();
  void say_waits(const std::vector<watch::RankSnapshot>& ranks, Clock::time_point now);
  void consider_verdict(const std::vector<watch::RankSnapshot>& ranks, const std::vector<WatchedWorker>& workers,
                        Clock::time_point now);
  void begin_verdict(const watch::Verdict& verdict, const std::vector<WatchedWorker>& workers, Clock::time_point now);
  void end_verdict(const std::vector<watch::RankSnapshot>& ranks, Clock::time_point now);
  Millis prompt_time() const;
  Millis look_interval() const;

  const Options options_;
  std::vector<Local> locals_;
  watch::Verdict verdict_;
  std::map<int, Blame> blames_;  // by the rank that waited
  Millis waited_{0};             // the longest wait of a rank of this node, at the last look
  std::unique_ptr<RankViews> others_;
  Clock::time_point looked_ = {};
  Clock::time_point watching_since_;
  std::map<std::string, Said> said_;
  Clock::time_point waited_at_ = {};  // when a wait was last worth a line
  std::optional<Pending> pending_;
  Clock::time_point next_verdict_ = {};
  Millis verdict_interval_;
  std::optional<ProvenHang> proven_;
  bool over_ = false;
};

}  // namespace trireme::launch
