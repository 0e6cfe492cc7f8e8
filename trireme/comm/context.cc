#include "trireme/comm/context.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "trireme/comm/backends/gloo.h"
#include "trireme/comm/engine/hierarchical.h"
#include "trireme/comm/engine/local.h"
#include "trireme/comm/engine/mpi.h"
#include "trireme/comm/engine/shm/group.h"
#include "trireme/comm/engine/topology.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"
#include "trireme/store/meeting_store.h"

namespace trireme::comm {
namespace {

constexpr size_t kLongestList = 128;  // of ranks, in the name of a group

std::vector<int> pick(std::span<const int> ranks, const std::vector<int>& places) {
  std::vector<int> picked;
  for (const int place : places) picked.push_back(ranks[static_cast<size_t>(place)]);
  return picked;
}

}  // namespace

std::vector<int> hosts_of(const std::vector<Card>& cards, std::span<const int> ranks) {
  std::vector<HostIdentity> hosts;
  std::vector<int> result;
  for (const int rank : ranks) {
    const HostIdentity& host = cards[static_cast<size_t>(rank)].process.host;
    auto found = std::find(hosts.begin(), hosts.end(), host);
    if (found == hosts.end()) found = hosts.insert(hosts.end(), host);
    result.push_back(static_cast<int>(found - hosts.begin()));
  }
  return result;
}

std::shared_ptr<Context> Context::meet(const ContextOptions& options) {
  std::shared_ptr<Context> context(new Context(options));
  if (!options.store || options.world.size == 1) return context;
  std::vector<int> everyone(static_cast<size_t>(options.world.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  context->meeting_ = watch::Group(options.prefix + "card", everyone, options.world.size);
  const watch::Recording recording(context->meeting_, {.operation = "init_parallel_env"});
  context->watch_meeting("init_parallel_env", "card", everyone,
                         [&](const std::shared_ptr<Store>& store) { context->exchange_cards(*store); });
  return context;
}

// Ranks meet in the store. Under our own launcher, a rank that has ended and cannot come any more ends the wait.
template <typename Meet>
void Context::watch_meeting(const char* operation, const std::string& name, std::span<const int> ranks,
                            const Meet& meet) {
  if (!options_.attempt || !options_.store) return meet(options_.store);
  const auto store = std::make_shared<store::MeetingStore>(
      options_.store, store::MeetingStore::Options{.operation = operation,
                                                   .prefix = options_.prefix + name + "/",
                                                   .me = options_.world.rank,
                                                   .ranks = {ranks.begin(), ranks.end()},
                                                   .attempt = *options_.attempt});
  try {
    meet(store);
    store->finish();
  } catch (const PeerError&) {
    note_wait(operation, store->unfinished());
    throw;
  }
}

// So that the launcher can tell the rank that ended early from those that failed because of it.
void Context::note_wait(const char* operation, std::vector<int> ranks) const {
  std::erase(ranks, options_.world.rank);
  store::EndedRanks(options_.store, *options_.attempt)
      .note_wait({.rank = options_.world.rank, .operation = operation, .ranks = std::move(ranks)});
}

// When a collective fails because of another rank, the launcher must know for which ranks this one waited.
void Context::report_waits(Engine& engine, std::span<const int> ranks) const {
  if (!options_.attempt || !options_.store || ranks.size() == 1) return;
  engine.report_waits(
      [this, members = std::vector<int>(ranks.begin(), ranks.end())](
          const char* operation, const std::vector<int>& places) { note_wait(operation, pick(members, places)); });
}

// Rank 0 collects the cards and gives out the pack: two keys to ask for on every other rank, however many there are.
void Context::exchange_cards(Store& store) {
  const Deadline deadline = Deadline::in(options_.timeout);
  const std::string prefix = options_.prefix + "card/";
  beacon_ = std::make_unique<Beacon>(options_.address);
  const Card mine{shm::this_process(), host_name(), options_.address, beacon_->endpoint(), options_.gpu};
  store.set(prefix + std::to_string(options_.world.rank), encode(mine));
  const std::string pack_key = prefix + "all";
  if (options_.world.rank == 0) {
    std::string pack;
    for (int rank = 0; rank < options_.world.size; ++rank) {
      if (rank > 0) pack += '\f';
      pack += store.get(prefix + std::to_string(rank), deadline);
    }
    store.set(pack_key, pack);
  }
  for (const std::string& card : split(store.get(pack_key, deadline), '\f')) cards_.push_back(decode_card(card));
  if (cards_.size() != static_cast<size_t>(options_.world.size))
    throw PeerError("{} cards for {} ranks; is the store's prefix {} in use by another job?", cards_.size(),
                    options_.world.size, options_.prefix);
}

// The name is part of keys in the store, so long lists are cut to their digest.
std::string Context::name_group(std::span<const int> ranks) {
  std::string list = fmt::format("{}", fmt::join(ranks, "-"));
  if (list.size() > kLongestList) list = fmt::format("{}-ranks-{}", ranks.size(), to_hex(sha256(list)).substr(0, 32));
  const std::lock_guard lock(mutex_);
  return fmt::format("{}#{}", list, uses_[list]++);
}

RankInfo Context::me_among(std::span<const int> ranks) const {
  const auto found = std::find(ranks.begin(), ranks.end(), options_.world.rank);
  return {static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size())};
}

Suspect Context::suspect(std::span<const int> ranks, size_t place, const RankNames& names) const {
  const Card& card = cards_[static_cast<size_t>(ranks[place])];
  const int name = called(names, static_cast<int>(place));
  return {name, fmt::format("rank {} (process {} on {})", name, card.process.pid, card.host), card.beacon};
}

Blame Context::blame(std::span<const int> ranks, const RankNames& names) const {
  std::vector<Suspect> suspects;
  for (size_t place = 0; place < ranks.size(); ++place) suspects.push_back(suspect(ranks, place, names));
  return comm::blame(suspects);
}

Blame Context::find_dead(std::span<const int> ranks, const RankNames& names, size_t turn) const {
  constexpr size_t kAskedAtOnce = 16;
  std::vector<Suspect> suspects;
  for (size_t i = 0; i < std::min(kAskedAtOnce, ranks.size()); ++i)
    suspects.push_back(suspect(ranks, (turn * kAskedAtOnce + i) % ranks.size(), names));
  return blame_dead(suspects);
}

std::unique_ptr<Engine> Context::make_gloo(const std::shared_ptr<Store>& store, const std::string& name,
                                           std::span<const int> ranks, const Member& member) {
  const std::vector<int> all(ranks.begin(), ranks.end());
  return make_gloo_engine(
      store, {.prefix = options_.prefix + name + "/gloo/",
              .member = member,
              .address = options_.address,
              .timeout = options_.timeout,
              .blame = [this, all, names = member.names] { return blame(all, names); },
              .find_dead = [this, all, names = member.names](size_t turn) { return find_dead(all, names, turn); }});
}

std::unique_ptr<Engine> Context::make_shm(const std::shared_ptr<Store>& store, const std::string& name,
                                          const Member& member) {
  return shm::Group::join(store, {.name = options_.prefix + name, .member = member, .timeout = options_.timeout},
                          Deadline::in(options_.timeout));
}

// The engines below call their ranks as the whole group counts them.
std::unique_ptr<Engine> Context::make_hierarchical(const std::shared_ptr<Store>& store, const std::string& name,
                                                   std::span<const int> ranks) {
  const std::vector<int> host_of = hosts_of(cards_, ranks);
  const Topology topology(host_of);
  const RankInfo me = me_among(ranks);
  const int host = topology.host_of(me.rank);
  const int place = topology.place_of(me.rank);
  const auto part = [&](const std::string& part_name, const std::vector<int>& members, Transport transport) {
    const std::vector<int> world_ranks = pick(ranks, members);
    return make_plain_engine(members.size() == 1 ? Transport::local : transport, store, part_name, world_ranks,
                             {.me = me_among(world_ranks), .group = name, .names = members});
  };
  return make_hierarchical_engine(
      {.me = me, .group = name},
      {.host_of = host_of,
       .inner = part(fmt::format("{}/host{}", name, host), topology.members(host), Transport::shm),
       .across = part(fmt::format("{}/place{}", name, place), topology.column(place), Transport::gloo),
       .flat = make_gloo(store, name + "/flat", ranks, {.me = me, .group = name})});
}

std::unique_ptr<Engine> Context::make_plain_engine(Transport transport, const std::shared_ptr<Store>& store,
                                                   const std::string& name, std::span<const int> ranks,
                                                   const Member& member) {
  switch (transport) {
    case Transport::local:
      return make_local_engine(member.group);
    case Transport::shm:
      return make_shm(store, name, member);
    case Transport::gloo:
      return make_gloo(store, name, ranks, member);
    case Transport::hierarchical:
      return make_hierarchical(store, name, ranks);
    case Transport::mpi:
      return make_mpi_engine(
          {.group = member.group, .world_ranks = {ranks.begin(), ranks.end()}, .timeout = options_.timeout});
  }
  throw std::logic_error("no such Transport");
}

std::unique_ptr<Engine> Context::make_engine(const std::string& name, std::span<const int> ranks,
                                             const char* operation) {
  if (!options_.mpi && ranks.size() > 1 && !options_.store)
    throw UsageError("{} ranks, but no store to meet in: start the program by trireme launch, mpirun or torchrun",
                     ranks.size());
  if (ranks.size() == 1) return meet_members(options_.store, name, ranks);
  watch::Group group(options_.prefix + name, ranks, options_.world.size);
  std::unique_ptr<Engine> engine;
  {
    const watch::Recording recording(group, {.operation = operation});
    watch_meeting(operation, name, ranks,
                  [&](const std::shared_ptr<Store>& store) { engine = meet_members(store, name, ranks); });
  }
  report_waits(*engine, ranks);
  engine->record_calls(std::move(group), {ranks.begin(), ranks.end()});
  if (options_.log_calls) engine->log_calls();
  return engine;
}

std::unique_ptr<Engine> Context::meet_members(const std::shared_ptr<Store>& store, const std::string& name,
                                              std::span<const int> ranks) {
  const Transport transport = options_.mpi        ? Transport::mpi
                              : ranks.size() == 1 ? Transport::local
                                                  : choose_transport(hosts_of(cards_, ranks), options_.backend);
  std::unique_ptr<Engine> engine =
      make_plain_engine(transport, store, name, ranks, {.me = me_among(ranks), .group = name});
  if (options_.compare_calls && ranks.size() > 1) engine->compare_calls();
  return engine;
}

}  // namespace trireme::comm
