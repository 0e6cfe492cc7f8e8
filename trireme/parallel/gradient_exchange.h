// What brings the gradients of the ranks together in backward(): GradientSync averages them on every rank, ShardSync
// leaves each rank its share of the averages.
#pragma once

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
  /// Backwards that begin while it is off leave the gradients local.
  virtual void set_enabled(bool enabled) = 0;
  virtual bool enabled() const = 0;
  /// Throws what went wrong inside an operator of forward, where libtorch lets no exception through.
  virtual void rethrow_failure() {}
  /// The other ranks' calls end with this reason, now or when they come.
  virtual void abort(const std::string& reason) { group().abort(reason); }
};

/// While it lives, backward() leaves the gradients local; the next one after it averages the whole sum.
///
///   { auto local = model.no_sync(); loss1.backward(); }
///   loss2.backward();
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<GradientExchange> exchange)
      : exchange_(std::move(exchange)), before_(exchange_->enabled()) {
    exchange_->set_enabled(false);
  }
  ~NoSync() {
    if (exchange_) exchange_->set_enabled(before_);
  }
  NoSync(NoSync&&) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;

 private:
  std::shared_ptr<GradientExchange> exchange_;
  bool before_;
};

}  // namespace trireme
