// Words
//   limit   the most elements of one MPI call: MPI counts in int. Longer tensors go in pieces of this size.
//   room    a buffer of our own that MPI reads or writes during an operation.
//
// Collectives are MPI's nonblocking ones. Where counts or their sums exceed the limit, all_gather, gather and scatter
// become messages between each two ranks, reduce_scatter one reduce for each receiver. all_to_all always is messages:
// only the two ranks concerned know a count, so the ranks could not agree on another way.
#include <algorithm>

#include "trireme/comm/engine/crossing.h"
#include "trireme/comm/engine/mpi/communicator_impl.h"
#include "trireme/comm/engine/mpi/exchange_impl.h"
#include "trireme/comm/engine/mpi/plugin.h"
#include "trireme/comm/engine/mpi/types_impl.h"
#include "trireme/core/deadline.h"

namespace trireme::comm::mpi {
namespace {

using Counts = Engine::Counts;

std::vector<int> ints(Counts counts) {
  return {counts.begin(), counts.end()};
}

std::vector<int> starts(Counts counts) {
  std::vector<int> result;
  int start = 0;
  for (const size_t count : counts) result.push_back(std::exchange(start, start + static_cast<int>(count)));
  return result;
}

bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

class MpiEngine final : public Engine {
 public:
  MpiEngine(const MpiOptions& options, std::unique_ptr<Communicator> group)
      : Engine({.me = group->me(), .group = options.group}),
        group_(std::move(group)),
        limit_(std::max<size_t>(1, options.max_elements)),
        exchange_(*group_, limit_) {}

  const char* name() const override { return "mpi"; }

 private:
  void do_all_reduce(const Operation& call, void* data) override {
    group_->perform([&](Deadline deadline) {
      average(call, bytes(data), true, [&](std::byte* work, DType type, ReduceOp joins) {
        all_reduce_now(work, call.dims.elements, type, joins, deadline);
      });
    });
  }

  void do_reduce(const Operation& call, void* data) override {
    group_->perform([&](Deadline deadline) {
      const bool wanted = rank() == call.root;
      average(call, bytes(data), wanted, [&](std::byte* work, DType type, ReduceOp joins) {
        reduce_now(wanted ? MPI_IN_PLACE : work, work, call.dims.elements, type, joins, call.root, deadline);
      });
    });
  }

  void do_broadcast(const Operation& call, void* data) override {
    group_->perform([&](Deadline deadline) {
      for_pieces(call.dims.elements, [&](size_t begin, int count) {
        group_->run("MPI_Ibcast", deadline, [&](MPI_Request* request) {
          return MPI_Ibcast(at(data, begin, call.dtype), count, datatype_of(call.dtype), call.root,
                            group_->collectives(), request);
        });
      });
    });
  }

  void do_all_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    const DType dtype = call.dtype;
    group_->perform([&](Deadline deadline) {
      if (total(counts) > limit_)
        return exchange_.run(same_for_all(input, counts[me_index()], dtype, size()), parts(output, counts, dtype),
                             deadline);
      const auto sizes = ints(counts);
      const auto places = starts(counts);
      const bool in_place = input == at(output, static_cast<size_t>(places[me_index()]), dtype);
      group_->run("MPI_Iallgatherv", deadline, [&](MPI_Request* request) {
        return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : input, sizes[me_index()], datatype_of(dtype), output,
                               sizes.data(), places.data(), datatype_of(dtype), group_->collectives(), request);
      });
    });
  }

  void do_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    const DType dtype = call.dtype;
    group_->perform([&](Deadline deadline) {
      if (total(counts) > limit_)
        return exchange_.run(only_for(call.root, same_for_all(input, counts[me_index()], dtype, size())),
                             rank() == call.root ? parts(output, counts, dtype) : nothing(size()), deadline);
      const auto sizes = ints(counts);
      const auto places = starts(counts);
      group_->run("MPI_Igatherv", deadline, [&](MPI_Request* request) {
        return MPI_Igatherv(input, sizes[me_index()], datatype_of(dtype), output, sizes.data(), places.data(),
                            datatype_of(dtype), call.root, group_->collectives(), request);
      });
    });
  }

  void do_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    const DType dtype = call.dtype;
    group_->perform([&](Deadline deadline) {
      if (total(counts) > limit_)
        return exchange_.run(rank() == call.root ? parts(input, counts, dtype) : nothing(size()),
                             only_for(call.root, same_for_all(output, counts[me_index()], dtype, size())), deadline);
      const auto sizes = ints(counts);
      const auto places = starts(counts);
      group_->run("MPI_Iscatterv", deadline, [&](MPI_Request* request) {
        return MPI_Iscatterv(input, sizes.data(), places.data(), datatype_of(dtype), output, sizes[me_index()],
                             datatype_of(dtype), call.root, group_->collectives(), request);
      });
    });
  }

  void do_reduce_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    const DType dtype = call.dtype;
    group_->perform([&](Deadline deadline) {
      const size_t mine = counts[me_index()];
      if (call.op == ReduceOp::avg && is_half(dtype)) {
        std::vector<float> wide(total(counts));
        std::vector<float> sums(mine);
        widen(dtype, bytes(input), wide.size(), wide.data());
        reduce_scatter_now(wide.data(), counts, DType::f32, ReduceOp::sum, sums.data(), deadline);
        divide(bytes(sums.data()), mine, DType::f32, ranks());
        narrow(dtype, sums.data(), mine, bytes(output));
        return;
      }
      const bool averages = call.op == ReduceOp::avg;
      reduce_scatter_now(input, counts, dtype, averages ? ReduceOp::sum : call.op, output, deadline);
      if (averages) divide(bytes(output), mine, dtype, ranks());
    });
  }

  void do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) override {
    group_->perform([&](Deadline deadline) {
      exchange_.run(parts(input, sent, call.dtype), parts(output, received, call.dtype), deadline);
    });
  }

  void do_barrier(const Operation& /*call*/) override {
    group_->perform([&](Deadline deadline) {
      group_->run("MPI_Ibarrier", deadline,
                  [&](MPI_Request* request) { return MPI_Ibarrier(group_->collectives(), request); });
    });
  }

  // The tag of a message is its type, so that the receiver can compare it.
  void do_send(const Operation& call, const void* data) override {
    group_->perform([&](Deadline deadline) {
      for_messages(call.dims.elements, size_of(call.dtype), limit_, [&](size_t begin, size_t count) {
        group_->run("MPI_Isend", deadline, [&](MPI_Request* request) {
          return MPI_Isend(at(data, begin, call.dtype), static_cast<int>(count), datatype_of(call.dtype), call.to,
                           static_cast<int>(call.dtype), group_->messages(), request);
        });
      });
    });
  }
  void do_recv(const Operation& call, void* data) override {
    group_->perform([&](Deadline deadline) {
      for_messages(call.dims.elements, size_of(call.dtype), limit_, [&](size_t begin, size_t count) {
        MPI_Message message = next_message(call, count, deadline);
        group_->run("MPI_Imrecv", deadline, [&](MPI_Request* request) {
          return MPI_Imrecv(at(data, begin, call.dtype), static_cast<int>(count), datatype_of(call.dtype), &message,
                            request);
        });
      });
    });
  }

  void do_abort(const Blame& blame) override { group_->abort(blame); }

  size_t me_index() const { return static_cast<size_t>(rank()); }
  float ranks() const { return static_cast<float>(size()); }

  template <typename Visit>
  void for_pieces(size_t elements, Visit visit) const {
    for (size_t begin = 0; begin < elements; begin += limit_)
      visit(begin, static_cast<int>(std::min(limit_, elements - begin)));
  }

  // An average is a sum and a division; of half and bfloat16 both in float. The result is wanted here or not.
  template <typename Joins>
  void average(const Operation& call, std::byte* data, bool wanted, Joins join) const {
    const size_t elements = call.dims.elements;
    if (call.op != ReduceOp::avg) return join(data, call.dtype, call.op);
    if (!is_half(call.dtype)) {
      join(data, call.dtype, ReduceOp::sum);
      if (wanted) divide(data, elements, call.dtype, ranks());
      return;
    }
    std::vector<float> wide(elements);
    widen(call.dtype, data, elements, wide.data());
    join(bytes(wide.data()), DType::f32, ReduceOp::sum);
    if (!wanted) return;
    divide(bytes(wide.data()), elements, DType::f32, ranks());
    narrow(call.dtype, wide.data(), elements, data);
  }

  void all_reduce_now(std::byte* data, size_t elements, DType dtype, ReduceOp op, Deadline deadline) {
    const MPI_Op joins = operation_of(dtype, op);
    for_pieces(elements, [&](size_t begin, int count) {
      group_->run("MPI_Iallreduce", deadline, [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, at(data, begin, dtype), count, datatype_of(dtype), joins,
                              group_->collectives(), request);
      });
    });
  }

  void reduce_now(const void* given, void* result, size_t elements, DType dtype, ReduceOp op, int root,
                  Deadline deadline) {
    const MPI_Op joins = operation_of(dtype, op);
    const bool in_place = given == MPI_IN_PLACE;
    for_pieces(elements, [&](size_t begin, int count) {
      group_->run("MPI_Ireduce", deadline, [&](MPI_Request* request) {
        return MPI_Ireduce(in_place ? MPI_IN_PLACE : at(given, begin, dtype),
                           rank() == root ? at(result, begin, dtype) : nullptr, count, datatype_of(dtype), joins, root,
                           group_->collectives(), request);
      });
    });
  }

  void reduce_scatter_now(const void* input, Counts counts, DType dtype, ReduceOp op, void* output, Deadline deadline) {
    if (total(counts) > limit_) {
      size_t begin = 0;
      for (int k = 0; k < size(); begin += counts[static_cast<size_t>(k++)])
        reduce_now(at(input, begin, dtype), output, counts[static_cast<size_t>(k)], dtype, op, k, deadline);
      return;
    }
    const auto sizes = ints(counts);
    const MPI_Op joins = operation_of(dtype, op);
    group_->run("MPI_Ireduce_scatter", deadline, [&](MPI_Request* request) {
      return MPI_Ireduce_scatter(input, output, sizes.data(), datatype_of(dtype), joins, group_->collectives(),
                                 request);
    });
  }

  // The next message of the sender, compared before a byte of it is received.
  MPI_Message next_message(const Operation& call, size_t count, Deadline deadline) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    const auto arrived = [&] {
      int found = 0;
      check(MPI_Improbe(call.root, MPI_ANY_TAG, group_->messages(), &found, &message, &status), "MPI_Improbe");
      return found != 0;
    };
    group_->poll(arrived, deadline);
    int size_in_bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &size_in_bytes), "MPI_Get_count");
    const auto sent_type = static_cast<DType>(status.MPI_TAG);
    const size_t sent = static_cast<size_t>(size_in_bytes) / size_of(sent_type);
    if (sent_type != call.dtype || sent != count)
      throw Disagreement("rank {}: {}: rank {} sent {}, {} elements, but rank {} expects {}, {}", rank(),
                         describe(call), call.root, to_string(sent_type), sent, rank(), to_string(call.dtype), count);
    return message;
  }

  const std::unique_ptr<Communicator> group_;
  const size_t limit_;
  Exchange exchange_;
};

const MpiPlugin kPlugin = {
    .version = kVersion,
    .make_engine = [](const MpiOptions& options) -> std::unique_ptr<Engine> {
      return std::make_unique<MpiEngine>(options, std::make_unique<Communicator>(options));
    },
};

}  // namespace
}  // namespace trireme::comm::mpi

extern "C" [[gnu::visibility("default")]] const trireme::comm::MpiPlugin* trireme_mpi_plugin() {
  return &trireme::comm::mpi::kPlugin;
}
