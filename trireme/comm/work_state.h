// What is behind a Work: c10d's.
#pragma once

#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "trireme/comm/work.h"

namespace trireme {

struct Work::State {
  c10::intrusive_ptr<c10d::Work> work;
  std::shared_ptr<State> before;  ///< what then() was called on
  std::function<void()> after;
  std::once_flag once;
};

/// Wraps c10d's work.
Work make_work(c10::intrusive_ptr<c10d::Work> work);

}  // namespace trireme
