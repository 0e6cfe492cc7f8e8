// A node that comes to a job that has begun: it waits for a free number, checks that it fits and reaches the members,
// and asks them to gather again. What is wrong with it ends the newcomer and does not disturb the job.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/core/deadline.h"
#include "trireme/core/token.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/store/store.h"

namespace trireme::launch {

struct NumberWish {
  std::string name;
  std::optional<int> wanted = {};
  int nodes = 1;  // at most
};
/// The wanted number or another free one. While there is none the node is a spare. PeerError when the deadline passes.
int wait_for_number(Store& store, const NumberWish& wish, Deadline deadline);

/// Compares the node with the members and tries the way to each; chooses a log folder that no other launcher uses.
/// UsageError when the node cannot run with them, PeerError when it cannot reach one until the deadline.
void prepare_to_join(Store& store, const Token& token, Introduction& self, Deadline deadline);

/// Ends the attempt of this round, unless some of its ranks have ended: it is about to end then.
void ask_to_gather(const std::shared_ptr<Store>& store, int round, const std::string& node);

}  // namespace trireme::launch
