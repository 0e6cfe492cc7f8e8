// Words
//   limit   the most elements of one MPI call: MPI counts in int. Longer tensors go in pieces of this size.
//   room    a buffer of our own that MPI reads or writes during an operation.
//
// Collectives are MPI's nonblocking ones. Where counts or their sums exceed the limit, all_gather, gather and scatter
// become messages between each two ranks, reduce_scatter one reduce for each receiver. all_to_all always is messages:
// only the two ranks concerned know a count, so the ranks could not agree on another way.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "trireme/comm/engine/crossing.h"
#include "trireme/comm/engine/mpi/communicator_impl.h"
#include "trireme/comm/engine/mpi/engine_impl.h"
#include "trireme/comm/engine/mpi/types_impl.h"

namespace trireme::mpi {
namespace {

constexpr int kDataTag = 0;                          // of messages inside collectives
constexpr size_t kLongestMessage = size_t{1} << 30;  // bytes

using Counts = Engine::Counts;

const std::byte* bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}

std::byte* bytes(void* data) {
  return static_cast<std::byte*>(data);
}

size_t total(Counts counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

std::vector<int> ints(Counts counts) {
  return {counts.begin(), counts.end()};
}

std::vector<int> starts(Counts counts) {
  std::vector<int> result;
  int start = 0;
  for (const size_t count : counts) result.push_back(std::exchange(start, start + static_cast<int>(count)));
  return result;
}

// A stretch of memory that goes to a rank or comes from one.
struct Stretch {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t size = 0;  // in bytes
};

bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

class MpiEngine : public Engine {
 public:
  explicit MpiEngine(const MpiOptions& options)
      : group_(options), me_(group_.me()), limit_(std::max<size_t>(1, options.most_elements)) {}

  const char* name() const override { return "mpi"; }
  RankInfo me() const override { return me_; }

  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) override {
    check_reducible(dtype, op);
    group_.perform(describe("all_reduce", elements, dtype, shm::to_string(op)), [&](Deadline deadline) {
      average(bytes(data), elements, dtype, op, true, [&](std::byte* work, DType type, ReduceOp joins) {
        all_reduce_now(work, elements, type, joins, deadline);
      });
    });
  }

  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    check_reducible(dtype, op);
    check_rank("reduce", root);
    group_.perform(describe("reduce", elements, dtype, shm::to_string(op)), [&](Deadline deadline) {
      average(bytes(data), elements, dtype, op, me_.rank == root, [&](std::byte* work, DType type, ReduceOp joins) {
        const void* given = me_.rank == root ? MPI_IN_PLACE : work;
        reduce_now(given, work, elements, type, joins, root, deadline);
      });
    });
  }

  void broadcast(void* data, size_t elements, DType dtype, int root) override {
    check_rank("broadcast", root);
    group_.perform(describe("broadcast", elements, dtype), [&](Deadline deadline) {
      for_pieces(elements, [&](size_t begin, int count) {
        group_.run("MPI_Ibcast", deadline, [&](MPI_Request* request) {
          return MPI_Ibcast(at(data, begin, dtype), count, datatype_of(dtype), root, group_.collectives(), request);
        });
      });
    });
  }

  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    check_counts("all_gather", counts);
    group_.perform(describe("all_gather", total(counts), dtype), [&](Deadline deadline) {
      if (total(counts) > limit_)
        return exchange(same_for_all(input, counts, dtype), parts(output, counts, dtype), deadline);
      const auto sizes = ints(counts);
      const auto places = starts(counts);
      std::byte* mine = at(output, static_cast<size_t>(places[rank()]), dtype);
      const bool in_place = input == mine;
      group_.run("MPI_Iallgatherv", deadline, [&](MPI_Request* request) {
        return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : input, sizes[rank()], datatype_of(dtype), output, sizes.data(),
                               places.data(), datatype_of(dtype), group_.collectives(), request);
      });
    });
  }

  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check_rank("gather", root);
    check_counts("gather", counts);
    group_.perform(describe("gather", total(counts), dtype), [&](Deadline deadline) {
      const bool collects = me_.rank == root;
      if (total(counts) > limit_)
        return exchange(only_for(root, same_for_all(input, counts, dtype)),
                        collects ? parts(output, counts, dtype) : nothing(), deadline);
      const auto sizes = ints(counts);
      const auto places = starts(counts);
      group_.run("MPI_Igatherv", deadline, [&](MPI_Request* request) {
        return MPI_Igatherv(input, sizes[rank()], datatype_of(dtype), output, sizes.data(), places.data(),
                            datatype_of(dtype), root, group_.collectives(), request);
      });
    });
  }

  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check_rank("scatter", root);
    check_counts("scatter", counts);
    group_.perform(describe("scatter", total(counts), dtype), [&](Deadline deadline) {
      const bool gives = me_.rank == root;
      if (total(counts) > limit_)
        return exchange(gives ? parts(input, counts, dtype) : nothing(),
                        only_for(root, same_for_all(output, counts, dtype)), deadline);
      const auto sizes = ints(counts);
      const auto places = starts(counts);
      group_.run("MPI_Iscatterv", deadline, [&](MPI_Request* request) {
        return MPI_Iscatterv(input, sizes.data(), places.data(), datatype_of(dtype), output, sizes[rank()],
                             datatype_of(dtype), root, group_.collectives(), request);
      });
    });
  }

  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    check_reducible(dtype, op);
    check_counts("reduce_scatter", counts);
    group_.perform(describe("reduce_scatter", total(counts), dtype, shm::to_string(op)), [&](Deadline deadline) {
      const size_t mine = counts[rank()];
      if (op == ReduceOp::avg && is_half(dtype)) {
        std::vector<float> wide(total(counts));
        std::vector<float> sums(mine);
        widen(dtype, bytes(input), wide.size(), wide.data());
        reduce_scatter_now(wide.data(), counts, DType::f32, ReduceOp::sum, sums.data(), deadline);
        divide(bytes(sums.data()), mine, DType::f32, ranks());
        narrow(dtype, sums.data(), mine, bytes(output));
        return;
      }
      const bool averages = op == ReduceOp::avg;
      reduce_scatter_now(input, counts, dtype, averages ? ReduceOp::sum : op, output, deadline);
      if (averages) divide(bytes(output), mine, dtype, ranks());
    });
  }

  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    check_counts("all_to_all", sent);
    check_counts("all_to_all", received);
    group_.perform(describe("all_to_all", total(sent), dtype), [&](Deadline deadline) {
      exchange(parts(input, sent, dtype), parts(output, received, dtype), deadline);
    });
  }

  void barrier() override {
    group_.perform("barrier", [&](Deadline deadline) {
      group_.run("MPI_Ibarrier", deadline,
                 [&](MPI_Request* request) { return MPI_Ibarrier(group_.collectives(), request); });
    });
  }

  // The tag of a message is its type, so that the receiver can compare it.
  void send(const void* data, size_t elements, DType dtype, int to) override {
    check_peer("send", to);
    group_.perform(fmt::format("{} to rank {}", describe("send", elements, dtype), to), [&](Deadline deadline) {
      for_messages(elements, dtype, [&](size_t begin, size_t count) {
        group_.run("MPI_Isend", deadline, [&](MPI_Request* request) {
          return MPI_Isend(at(data, begin, dtype), static_cast<int>(count), datatype_of(dtype), to,
                           static_cast<int>(dtype), group_.messages(), request);
        });
      });
    });
  }
  void recv(void* data, size_t elements, DType dtype, int from) override {
    check_peer("recv", from);
    group_.perform(fmt::format("{} from rank {}", describe("recv", elements, dtype), from), [&](Deadline deadline) {
      for_messages(elements, dtype, [&](size_t begin, size_t count) {
        MPI_Message message = next_message(count, dtype, from, deadline);
        group_.run("MPI_Imrecv", deadline, [&](MPI_Request* request) {
          return MPI_Imrecv(at(data, begin, dtype), static_cast<int>(count), datatype_of(dtype), &message, request);
        });
      });
    });
  }

  void abort(std::string_view reason) override { group_.abort(reason); }

 private:
  size_t rank() const { return static_cast<size_t>(me_.rank); }
  float ranks() const { return static_cast<float>(me_.size); }

  static std::string describe(const char* what, size_t elements, DType dtype, const char* op = "") {
    return fmt::format("{} {}[{}]{}{}", what, shm::to_string(dtype), elements, *op ? " " : "", op);
  }
  void check_rank(const char* what, int rank) const {
    if (rank < 0 || rank >= me_.size)
      throw UsageError("rank {}: {} with rank {}, but the group has ranks 0 to {}", me_.rank, what, rank, me_.size - 1);
  }
  void check_peer(const char* what, int rank) const {
    check_rank(what, rank);
    if (rank == me_.rank) throw UsageError("rank {}: {} with itself; copy the data instead", me_.rank, what);
  }
  void check_counts(const char* what, Counts counts) const {
    if (counts.size() != static_cast<size_t>(me_.size))
      throw UsageError("rank {}: {} with {} counts for {} ranks; give one for each", me_.rank, what, counts.size(),
                       me_.size);
  }

  static const std::byte* at(const void* data, size_t element, DType dtype) {
    return element == 0 ? bytes(data) : bytes(data) + element * size_of(dtype);
  }
  static std::byte* at(void* data, size_t element, DType dtype) {
    return element == 0 ? bytes(data) : bytes(data) + element * size_of(dtype);
  }

  template <typename Visit>
  void for_pieces(size_t elements, Visit visit) const {
    for (size_t begin = 0; begin < elements; begin += limit_)
      visit(begin, static_cast<int>(std::min(limit_, elements - begin)));
  }
  // At least one, if empty: the receiver waits for it.
  template <typename Visit>
  void for_messages(size_t elements, DType dtype, Visit visit) const {
    const size_t most = std::min(limit_, kLongestMessage / size_of(dtype));
    size_t begin = 0;
    do {
      const size_t count = std::min(most, elements - begin);
      visit(begin, count);
      begin += count;
    } while (begin < elements);
  }

  // --- reductions

  // An average is a sum and a division; of half and bfloat16 both in float. The result is wanted here or not.
  template <typename Joins>
  void average(std::byte* data, size_t elements, DType dtype, ReduceOp op, bool wanted, Joins join) const {
    if (op != ReduceOp::avg) return join(data, dtype, op);
    if (!is_half(dtype)) {
      join(data, dtype, ReduceOp::sum);
      if (wanted) divide(data, elements, dtype, ranks());
      return;
    }
    std::vector<float> wide(elements);
    widen(dtype, data, elements, wide.data());
    join(bytes(wide.data()), DType::f32, ReduceOp::sum);
    if (!wanted) return;
    divide(bytes(wide.data()), elements, DType::f32, ranks());
    narrow(dtype, wide.data(), elements, data);
  }

  void all_reduce_now(std::byte* data, size_t elements, DType dtype, ReduceOp op, Deadline deadline) {
    const MPI_Op joins = operation_of(dtype, op);
    for_pieces(elements, [&](size_t begin, int count) {
      group_.run("MPI_Iallreduce", deadline, [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, at(data, begin, dtype), count, datatype_of(dtype), joins,
                              group_.collectives(), request);
      });
    });
  }

  void reduce_now(const void* given, void* result, size_t elements, DType dtype, ReduceOp op, int root,
                  Deadline deadline) {
    const MPI_Op joins = operation_of(dtype, op);
    const bool in_place = given == MPI_IN_PLACE;
    for_pieces(elements, [&](size_t begin, int count) {
      group_.run("MPI_Ireduce", deadline, [&](MPI_Request* request) {
        return MPI_Ireduce(in_place ? MPI_IN_PLACE : at(given, begin, dtype),
                           me_.rank == root ? at(result, begin, dtype) : nullptr, count, datatype_of(dtype), joins,
                           root, group_.collectives(), request);
      });
    });
  }

  void reduce_scatter_now(const void* input, Counts counts, DType dtype, ReduceOp op, void* output, Deadline deadline) {
    if (total(counts) > limit_) {
      size_t begin = 0;
      for (int k = 0; k < me_.size; begin += counts[static_cast<size_t>(k++)])
        reduce_now(at(input, begin, dtype), output, counts[static_cast<size_t>(k)], dtype, op, k, deadline);
      return;
    }
    const auto sizes = ints(counts);
    const MPI_Op joins = operation_of(dtype, op);
    group_.run("MPI_Ireduce_scatter", deadline, [&](MPI_Request* request) {
      return MPI_Ireduce_scatter(input, output, sizes.data(), datatype_of(dtype), joins, group_.collectives(), request);
    });
  }

  // --- messages between each two ranks

  using Stretches = std::vector<Stretch>;

  Stretches nothing() const { return Stretches(static_cast<size_t>(me_.size)); }
  static Stretch stretch(const void* data, size_t element, size_t count, DType dtype) {
    return {at(data, element, dtype), nullptr, count * size_of(dtype)};
  }
  static Stretch stretch(void* data, size_t element, size_t count, DType dtype) {
    return {nullptr, at(data, element, dtype), count * size_of(dtype)};
  }
  template <typename Data>
  Stretches parts(Data* data, Counts counts, DType dtype) const {
    Stretches result;
    size_t begin = 0;
    for (const size_t count : counts)
      result.push_back(stretch(data, std::exchange(begin, begin + count), count, dtype));
    return result;
  }
  template <typename Data>
  Stretches same_for_all(Data* data, Counts counts, DType dtype) const {
    return Stretches(static_cast<size_t>(me_.size), stretch(data, 0, counts[rank()], dtype));
  }
  Stretches only_for(int peer, const Stretches& all) const {
    Stretches result = nothing();
    result[static_cast<size_t>(peer)] = all[static_cast<size_t>(peer)];
    return result;
  }

  // Stretch k of `sent` goes to rank k, stretch k of `received` comes from there. Both sides send even empty ones.
  void exchange(const Stretches& sent, const Stretches& received, Deadline deadline) {
    copy_own(sent[rank()], received[rank()]);
    std::vector<MPI_Request> requests;
    std::vector<size_t> expected;  // bytes; of receives, which come first
    std::vector<int> peers;
    const auto post = [&](int peer, auto call) {
      const auto turn = Library::get().turn();
      check(call(&requests.emplace_back(MPI_REQUEST_NULL)), "exchange of messages");
      peers.push_back(peer);
    };
    for_peers([&](int peer) {
      const Stretch& part = received[static_cast<size_t>(peer)];
      for_messages(part.size, DType::u8, [&](size_t begin, size_t count) {
        expected.push_back(count);
        post(peer, [&](MPI_Request* request) {
          return MPI_Irecv(at(part.to, begin, DType::u8), static_cast<int>(count), MPI_BYTE, peer, kDataTag,
                           group_.collectives(), request);
        });
      });
    });
    for_peers([&](int peer) {
      const Stretch& part = sent[static_cast<size_t>(peer)];
      for_messages(part.size, DType::u8, [&](size_t begin, size_t count) {
        post(peer, [&](MPI_Request* request) {
          return MPI_Isend(at(part.from, begin, DType::u8), static_cast<int>(count), MPI_BYTE, peer, kDataTag,
                           group_.collectives(), request);
        });
      });
    });
    std::vector<MPI_Status> statuses(requests.size());
    group_.wait(requests, statuses, deadline);
    check_received(statuses, expected, peers);
  }
  template <typename Visit>
  void for_peers(Visit visit) const {
    for (int step = 1; step < me_.size; ++step) visit((me_.rank + step) % me_.size);
  }
  void copy_own(const Stretch& from, const Stretch& to) const {
    if (from.size != to.size)
      throw UsageError("rank {} sends itself {} bytes but expects {}", me_.rank, from.size, to.size);
    if (from.size != 0 && from.from != to.to) std::memcpy(to.to, from.from, from.size);
  }
  void check_received(const std::vector<MPI_Status>& statuses, const std::vector<size_t>& expected,
                      const std::vector<int>& peers) const {
    for (size_t i = 0; i < statuses.size(); ++i) {
      int error_class = MPI_SUCCESS;
      MPI_Error_class(statuses[i].MPI_ERROR, &error_class);
      if (error_class == MPI_ERR_TRUNCATE)
        throw UsageError("rank {} sent more than the {} bytes that rank {} expects", peers[i], expected[i], me_.rank);
      check(statuses[i].MPI_ERROR, "exchange of messages");
      int size = 0;
      if (i >= expected.size()) continue;
      check(MPI_Get_count(&statuses[i], MPI_BYTE, &size), "MPI_Get_count");
      if (static_cast<size_t>(size) != expected[i])
        throw UsageError("rank {} sent {} bytes, rank {} expects {}", peers[i], size, me_.rank, expected[i]);
    }
  }

  // The next message of a rank, compared before a byte of it is received.
  MPI_Message next_message(size_t count, DType dtype, int from, Deadline deadline) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    const auto come = [&] {
      int found = 0;
      check(MPI_Improbe(from, MPI_ANY_TAG, group_.messages(), &found, &message, &status), "MPI_Improbe");
      return found != 0;
    };
    group_.poll(come, deadline);
    int size = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
    const auto sent_type = static_cast<DType>(status.MPI_TAG);
    const size_t sent = static_cast<size_t>(size) / size_of(sent_type);
    if (sent_type != dtype || sent != count)
      throw UsageError("rank {} sent {}, {} elements, but rank {} expects {}, {}", from, shm::to_string(sent_type),
                       sent, me_.rank, shm::to_string(dtype), count);
    return message;
  }

  Communicator group_;
  const RankInfo me_;
  const size_t limit_;
};

}  // namespace

std::unique_ptr<Engine> make_engine(const MpiOptions& options) {
  return std::make_unique<MpiEngine>(options);
}

}  // namespace trireme::mpi
