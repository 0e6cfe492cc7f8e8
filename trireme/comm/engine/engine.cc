#include "trireme/comm/engine/engine.h"

#include <algorithm>

#include "trireme/core/clock.h"
#include "trireme/core/log.h"

namespace trireme::comm {
namespace {

constexpr size_t kMaxReason = 1000;  // bytes; a reason travels through small buffers

// Of equal parts the total says it all.
uint64_t digest_of_uneven(Engine::Counts counts) {
  const bool even = std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  return even ? 0 : digest(std::vector<uint64_t>(counts.begin(), counts.end()));
}

int64_t millis_since(Clock::time_point begin) {
  return std::chrono::duration_cast<Millis>(Clock::now() - begin).count();
}

}  // namespace

// --- checks

void Engine::check_root(const char* what, int root) const {
  if (root < 0 || root >= size())
    throw UsageError("rank {}: {} rank {}, but the group has ranks 0 to {}", called(rank()), what, root, size() - 1);
}

void Engine::check_peer(const char* what, int peer) const {
  if (peer == rank())
    throw UsageError("rank {}: {} rank {}, which is itself; copy instead", called(rank()), what, peer);
  check_root(what, peer);
}

void Engine::check_counts(Kind kind, Counts counts) const {
  if (counts.size() != static_cast<size_t>(size()))
    throw UsageError("rank {}: {} with {} sizes for {} ranks; give one for each", called(rank()), to_string(kind),
                     counts.size(), size());
}

void Engine::check_alive(const Operation& call) {
  if (::getpid() != owner_)
    throw UsageError(
        "rank {}: {} in a process that was forked from process {}, to which the group belongs; start programs by exec, "
        "or fork before init_parallel_env()",
        called(rank()), to_string(call.kind), owner_);
  std::unique_lock lock(mutex_);
  if (!failure_) return;
  const PeerError failure = *failure_;
  lock.unlock();
  report(call);
  throw failure;
}

// --- comparing

void Engine::gather_bytes(std::span<const std::byte> mine, void* all) {
  const std::vector<size_t> counts(static_cast<size_t>(size()), mine.size());
  do_all_gather({.kind = Kind::all_gather, .dims = total(counts)}, mine.data(), counts, all);
}

void Engine::compare(const Operation& call) {
  std::vector<Operation> all(static_cast<size_t>(size()));
  gather_bytes(std::as_bytes(std::span(&call, 1)), all.data());
  if (const auto mismatch = find_mismatch(all, names())) throw Disagreement("{}", *mismatch);
}

void Engine::compare_parts(const Operation& call, Counts sent, Counts received) {
  std::vector<size_t> mine(sent.begin(), sent.end());
  mine.insert(mine.end(), received.begin(), received.end());
  std::vector<size_t> all(mine.size() * static_cast<size_t>(size()));
  gather_bytes(std::as_bytes(std::span(mine)), all.data());
  if (const auto mismatch = find_mismatch(call, all, sent.size(), names())) throw Disagreement("{}", *mismatch);
}

// --- running and failing

template <typename Body>
void Engine::run(Operation call, Body body) {
  const std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn)
    throw UsageError("rank {}: two threads are in one group; it runs one collective at a time, so queue them",
                     called(rank()));
  check_alive(call);
  call.sequence = ++sequence_;
  guard(call, [&] {
    if (compares_) compare(call);
    body(call);
  });
}

template <typename Body>
void Engine::guard(const Operation& call, Body body) {
  const watch::Recording recording(recorded_, facts_of(call));
  if (logs_) log_info("rank {} calls {} of group {}", world_rank(rank()), describe(call, world_ranks_), member_.group);
  const auto begun = Clock::now();
  const auto fail = [&](std::optional<int> blamed, const std::string& reason, const std::string& text) {
    PeerError failure({.rank = blamed,
                       .operation = to_string(call.kind),
                       .sequence = call.sequence,
                       .group = member_.group,
                       .reason = reason},
                      text);
    set_failure(failure);
    do_abort({blamed, reason});
    return failure;
  };
  try {
    body();
  } catch (const Disagreement& error) {
    fail(std::nullopt, error.what(), error.what());
    throw;
  } catch (const UsageError&) {
    throw;  // nothing has happened
  } catch (const PeerError& error) {
    report(call);
    throw fail(error.rank(), error.reason(),
               fmt::format("rank {}: {}, after {} ms: {}", called(rank()), describe(call, names()), millis_since(begun),
                           error.reason()));
  } catch (const Error& error) {
    fail(called(rank()), error.what(), error.what());
    throw;
  }
}

void Engine::report(const Operation& call) const {
  if (!report_) return;
  if (call.kind == Kind::message) {
    const bool sends = call.root == rank();
    return report_(sends ? "send" : "recv", {sends ? call.to : call.root});
  }
  std::vector<int> others;
  for (int other = 0; other < size(); ++other)
    if (other != rank()) others.push_back(other);
  report_(to_string(call.kind), others);
}

void Engine::record_calls(watch::Group group, std::vector<int> world_ranks) {
  recorded_ = std::move(group);
  world_ranks_ = std::move(world_ranks);
}

watch::CallFacts Engine::facts_of(const Operation& call) const {
  const bool message = call.kind == Kind::message;
  const bool sends = message && call.root == rank();
  const bool reduces = call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter || call.kind == Kind::reduce;
  const bool rooted = call.kind == Kind::broadcast || call.kind == Kind::reduce || call.kind == Kind::gather ||
                      call.kind == Kind::scatter;
  const bool sized = call.kind != Kind::barrier && call.kind != Kind::all_to_all;
  const size_t sizes = sized ? call.dims.count : 0;
  return {.operation = message ? (sends ? "send" : "recv") : to_string(call.kind),
          .dtype = sized ? to_string(call.dtype) : "",
          .reduce = reduces ? to_string(call.op) : "",
          .number = call.sequence,
          .elements = call.dims.elements,
          .bytes = sized ? call.dims.elements * size_of(call.dtype) : 0,
          .digest = call.dims.digest,
          .sizes = {call.dims.shown, std::min(sizes, Dims::kShown)},
          .size_count = sizes,
          .root = rooted ? world_rank(call.root) : -1,
          .peer = message ? world_rank(sends ? call.to : call.root) : -1};
}

bool Engine::set_failure(const PeerError& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_) return false;
  failure_.emplace(failure);
  return true;
}

void Engine::abort(std::string_view reason) {
  abort(Blame{called(rank()),
              fmt::format("rank {} aborted the group: {}", called(rank()), reason.substr(0, kMaxReason))});
}

void Engine::abort(const Blame& blame) {
  const PeerError failure({.rank = blame.rank, .group = member_.group, .reason = blame.reason},
                          fmt::format("rank {}: {}", called(rank()), blame.reason));
  if (set_failure(failure)) do_abort(blame);
}

// --- the operations

void Engine::all_reduce(void* data, const Dims& dims, DType dtype, ReduceOp op) {
  check_reducible(dtype, op);
  run({.kind = Kind::all_reduce, .dtype = dtype, .op = op, .dims = dims},
      [&](const Operation& call) { do_all_reduce(call, data); });
}

void Engine::reduce(void* data, const Dims& dims, DType dtype, ReduceOp op, int root) {
  check_reducible(dtype, op);
  check_root("reduce to", root);
  run({.kind = Kind::reduce, .dtype = dtype, .op = op, .root = root, .dims = dims},
      [&](const Operation& call) { do_reduce(call, data); });
}

void Engine::broadcast(void* data, const Dims& dims, DType dtype, int root) {
  check_root("broadcast from", root);
  run({.kind = Kind::broadcast, .dtype = dtype, .root = root, .dims = dims},
      [&](const Operation& call) { do_broadcast(call, data); });
}

void Engine::all_gather(const void* input, Counts counts, DType dtype, void* output) {
  check_counts(Kind::all_gather, counts);
  run({.kind = Kind::all_gather, .dtype = dtype, .dims = total(counts), .parts = digest_of_uneven(counts)},
      [&](const Operation& call) { do_all_gather(call, input, counts, output); });
}

void Engine::gather(const void* input, Counts counts, DType dtype, void* output, int root) {
  check_root("gather to", root);
  check_counts(Kind::gather, counts);
  run({.kind = Kind::gather, .dtype = dtype, .root = root, .dims = total(counts), .parts = digest_of_uneven(counts)},
      [&](const Operation& call) { do_gather(call, input, counts, output); });
}

void Engine::scatter(const void* input, Counts counts, DType dtype, void* output, int root) {
  check_root("scatter from", root);
  check_counts(Kind::scatter, counts);
  run({.kind = Kind::scatter, .dtype = dtype, .root = root, .dims = total(counts), .parts = digest_of_uneven(counts)},
      [&](const Operation& call) { do_scatter(call, input, counts, output); });
}

void Engine::reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) {
  check_reducible(dtype, op);
  check_counts(Kind::reduce_scatter, counts);
  run({.kind = Kind::reduce_scatter,
       .dtype = dtype,
       .op = op,
       .dims = total(counts),
       .parts = digest_of_uneven(counts)},
      [&](const Operation& call) { do_reduce_scatter(call, input, counts, output); });
}

void Engine::all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) {
  check_counts(Kind::all_to_all, sent);
  check_counts(Kind::all_to_all, received);
  run({.kind = Kind::all_to_all, .dtype = dtype}, [&](const Operation& call) {
    if (compares_) compare_parts(call, sent, received);
    do_all_to_all(call, input, sent, output, received);
  });
}

void Engine::barrier() {
  run({.kind = Kind::barrier}, [&](const Operation& call) { do_barrier(call); });
}

void Engine::send(const void* data, size_t elements, DType dtype, int to) {
  check_peer("send to", to);
  const Operation call{.kind = Kind::message, .dtype = dtype, .root = rank(), .to = to, .dims = elements};
  check_alive(call);
  guard(call, [&] { do_send(call, data); });
}

void Engine::recv(void* data, size_t elements, DType dtype, int from) {
  check_peer("recv from", from);
  const Operation call{.kind = Kind::message, .dtype = dtype, .root = from, .to = rank(), .dims = elements};
  check_alive(call);
  guard(call, [&] { do_recv(call, data); });
}

}  // namespace trireme::comm
