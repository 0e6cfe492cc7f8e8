// Several ranks on several hosts: reduce inside each host through shared memory, between the hosts over the network.
//
//   Hierarchy parts{.host_of = {0, 0, 1, 1}, .inner = shm, .across = gloo_of_my_column, .flat = gloo_of_all};
//   auto engine = make_hierarchical_engine({.me = {2, 4}}, std::move(parts));
//
// Which way a collective takes depends on its size and on host_of alone, so every run gives the same bits, and all
// ranks of an all_reduce get the same ones (given that the parts do). hierarchical.cc describes the ways.
//
// Averages are averages over all ranks, however they are spread: of float and double the sums are added up and divided
// once. Of half and bfloat16, whose sums may be too large for the type, each host's average is joined: two roundings
// where one engine alone has one.
//
// Errors say which part failed: "all_reduce #7 float[4] sum, after 50 ms: on host 1 (ranks 2, 3): rank 3 died". The
// first error ends all parts, so that the other hosts need not wait for a timeout.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/engine/engine.h"

namespace trireme::comm {

/// The engines a hierarchy is made of, all named from one rank's point of view. Each must call its ranks as the whole
/// group counts them (Member::names). `inner` and `across` may be null where they would have one member.
struct Hierarchy {
  std::vector<int> host_of;             ///< the host of each rank, counted from 0 in order of first appearance
  std::unique_ptr<Engine> inner = {};   ///< the ranks of this host, in rank order
  std::unique_ptr<Engine> across = {};  ///< the ranks with this rank's place inside their hosts, in host order
  std::unique_ptr<Engine> flat = {};    ///< all ranks, over the network
};

/// UsageError when the engines do not fit the member and host_of.
std::unique_ptr<Engine> make_hierarchical_engine(Member member, Hierarchy engines);

}  // namespace trireme::comm
