// What brings the gradients of the ranks together in backward(): GradientSync averages them on every rank, ShardSync
// leaves each rank its share of the averages.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "trireme/comm/group.h"

namespace trireme {

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  /// The ranks whose gradients are averaged; a group of its own.
  virtual const Group& group() const = 0;
  /// Backwards that begin while a NoSync of it lives leave the gradients local.
  bool enabled() const { return guards_ == 0; }
  /// Throws what went wrong inside an operator of forward, where libtorch lets no exception through.
  virtual void rethrow_failure() {}
  /// The other ranks' calls end with this reason, now or when they come.
  virtual void abort(const std::string& reason) { group().abort(reason); }

 protected:
  /// Called when the first NoSync begins and when the last one ends.
  virtual void set_enabled(bool /*enabled*/) {}

 private:
  friend class NoSync;
  void begin_local() {
    if (guards_++ == 0) set_enabled(false);
  }
  void end_local() {
    if (--guards_ == 0) set_enabled(true);
  }

  std::atomic<int> guards_ = 0;  // they may end in any order
};

/// While it lives, backward() leaves the gradients local; the next one after it averages the whole sum.
///
///   { auto local = model.no_sync(); loss1.backward(); }
///   loss2.backward();
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<GradientExchange> exchange) : exchange_(std::move(exchange)) {
    exchange_->begin_local();
  }
  ~NoSync() {
    if (exchange_) exchange_->end_local();
  }
  NoSync(NoSync&&) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;

 private:
  std::shared_ptr<GradientExchange> exchange_;
};

}  // namespace trireme
