// An engine that compares what the ranks are about to do before they do it (TRIREME_CHECK=1): for networks, where a
// rank in the wrong collective is otherwise a hang or, worse, a wrong sum.
//
//   auto engine = make_checked_engine(std::move(gloo));
//   engine->all_reduce(…)        UsageError: rank 0: all_reduce #42 float[1024] sum but rank 3: broadcast #42 …
#pragma once

#include <memory>

#include "trireme/comm/engine/engine.h"

namespace trireme {

/// Costs one small all_gather before each collective. Messages between two ranks pass unchecked.
std::unique_ptr<Engine> make_checked_engine(std::unique_ptr<Engine> engine);

}  // namespace trireme
