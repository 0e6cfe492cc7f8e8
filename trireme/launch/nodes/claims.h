// The numbers of a job's nodes, from 0 to one less than the largest number of nodes. A node claims one and introduces
// itself under it; the coordinator frees the numbers of nodes that have gone.
//
//   const int number = claim_number(store, name, std::nullopt, 4);
//   store.set(introduction_key(number), to_json(introduction));
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/nodes/job_link.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// Takes a number: the wanted one, or the lowest free one from 1 on. Throws UsageError when it is taken or none is
/// left, and PeerError when the store is lost.
int claim_number(Store& store, const std::string& name, std::optional<int> wanted, int nodes);
/// The wanted number if it is free, else the lowest free one from 1 on; nothing when all are taken.
std::optional<int> try_claim(Store& store, const std::string& name, std::optional<int> wanted, int nodes);
/// Frees a number of one's own.
void give_up_number(Store& store, int number);

/// A node that waits for a free number.
void queue_for_number(Store& store, const std::string& name);
void leave_queue(Store& store, const std::string& name);
int waiting_for_number(Store& store, LostNodes& departures);

/// Makes room for nodes that went away; returns them in words.
std::vector<std::string> drop_departed(Store& store, LostNodes& departures);
/// Every introduction that is there, by number.
std::map<int, std::string> introductions(Store& store);
/// Key of node `number`'s introduction.
std::string introduction_key(int number);

}  // namespace trireme::launch
