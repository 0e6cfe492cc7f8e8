#include "cases.h"

#include <fmt/core.h>
#include <torch/torch.h>

#include "trireme/comm/engine/dtype.h"
#include "trireme/core/error.h"

namespace trireme::ranks {
namespace {

// c.async decides between the two forms.
template <typename Sync, typename Async>
Work call(const Case& c, const Sync& sync, const Async& async) {
  if (c.async) return async();
  sync();
  return {};
}

// The shape with another number of rows; a scalar counts as one row.
Shape with_rows(const Case& c, int64_t rows) {
  Shape shape = c.shape.empty() ? Shape{1} : c.shape;
  shape[0] = rows;
  return shape;
}
int64_t rows_of(const Case& c) {
  return c.shape.empty() ? 1 : c.shape[0];
}

// How many rows rank `from` has for rank `to`, where sizes differ; sometimes none.
int64_t uneven_rows(const Case& c, int from, int to) {
  return (static_cast<int64_t>(c.seed % 97) + 3 * from + 5 * to) % 4;
}
torch::Tensor uneven_part(const Case& c, int from, int to) {
  return contribution(from, c.seed + 100 * static_cast<uint64_t>(to + 1), with_rows(c, uneven_rows(c, from, to)),
                      c.type);
}

Tensors for_each_rank(const Case& c, const std::function<torch::Tensor(int)>& make) {
  Tensors tensors;
  for (int rank = 0; rank < c.size(); ++rank) tensors.push_back(make(rank));
  return tensors;
}
Tensors in_layouts(const Case& c, const Tensors& values) {
  Tensors tensors;
  for (const torch::Tensor& value : values) tensors.push_back(in_layout(c.layout, value));
  return tensors;
}
Tensors values_of_all(const Case& c, int part = 0) {
  return for_each_rank(c, [&](int rank) { return c.values(rank, part); });
}
Tensors zeros_like(const Case& c, const Tensors& values) {
  return in_layouts(c,
                    for_each_rank(c, [&](int rank) { return torch::zeros_like(values[static_cast<size_t>(rank)]); }));
}
torch::Tensor joined(const Tensors& parts) {
  Tensors flat;
  for (const torch::Tensor& part : parts) flat.push_back(part.reshape(-1));
  return torch::cat(flat);
}

void expect_equal(const std::string& what, const Tensors& got, const Tensors& wanted) {
  if (got.size() != wanted.size())
    throw Mismatch(fmt::format("{}: {} tensors, not {}", what, got.size(), wanted.size()));
  for (size_t i = 0; i < got.size(); ++i) ranks::expect_equal(fmt::format("{}, part {}", what, i), got[i], wanted[i]);
}

// Shared memory promises one rounding for the short floating types; the others may round at every step.
int roundings(const Case& c) {
  const bool is_short = c.type == torch::kHalf || c.type == torch::kBFloat16;
  return is_short && c.group.backend() == "shm" && c.op != ReduceOp::prod ? 1 : 2 * c.size() + 2;
}
Reduced reduced(const Case& c, const Tensors& all) {
  return reduce_here(all, c.op, roundings(c));
}

Started all_reduce_of(const Case& c, const torch::Tensor& mine) {
  Work work = call(
      c, [&] { all_reduce(mine, c.op, c.group); }, [&] { return all_reduce_async(mine, c.op, c.group); });
  return {work, [=] { expect_close(c.describe("all_reduce"), mine, reduced(c, values_of_all(c))); }};
}
Started start_all_reduce(const Case& c) {
  return all_reduce_of(c, in_layout(c.layout, c.values(c.rank())));
}

// The same, and a second collective that compares the bits; so it is not for several at a time.
Started start_all_reduce_same_bits(const Case& c) {
  const torch::Tensor mine = in_layout(c.layout, c.values(c.rank()));
  const Started started = all_reduce_of(c, mine);
  started.work.wait();
  const std::vector<std::string> all = all_gather_object(bytes_of(mine), c.group);
  return {Work(), [=] {
            started.check();
            for (const std::string& bits : all)
              ranks::expect_equal(c.describe("all_reduce, bits of another rank"), bits, all[0]);
          }};
}

Started start_reduce(const Case& c) {
  const torch::Tensor mine = in_layout(c.layout, c.values(c.rank()));
  Work work = call(
      c, [&] { reduce(mine, c.root, c.op, c.group); }, [&] { return reduce_async(mine, c.root, c.op, c.group); });
  return {work, [=] {
            if (c.rank() == c.root)
              expect_close(c.describe("reduce"), mine, reduced(c, values_of_all(c)));
            else
              ranks::expect_equal(c.describe("reduce, not the root"), mine, c.values(c.rank()));
          }};
}

Started start_broadcast(const Case& c) {
  const torch::Tensor mine = in_layout(c.layout, c.values(c.rank()));
  Work work = call(
      c, [&] { broadcast(mine, c.root, c.group); }, [&] { return broadcast_async(mine, c.root, c.group); });
  return {work, [=] { ranks::expect_equal(c.describe("broadcast"), mine, c.values(c.root)); }};
}

Started all_gather_into(const Case& c, const char* name, Tensors outputs, const Tensors& all) {
  const torch::Tensor mine = in_layout(c.layout, all[static_cast<size_t>(c.rank())]);
  Work work = call(
      c, [&] { all_gather(outputs, mine, c.group); }, [&] { return all_gather_async(outputs, mine, c.group); });
  return {work, [=] { expect_equal(c.describe(name), outputs, all); }};
}
Started start_all_gather(const Case& c) {
  const Tensors all = values_of_all(c);
  return all_gather_into(c, "all_gather", zeros_like(c, all), all);
}
Started start_all_gather_new(const Case& c) {
  return all_gather_into(c, "all_gather_new", {}, values_of_all(c));
}
Started start_all_gather_uneven(const Case& c) {
  const Tensors all = for_each_rank(c, [&](int rank) { return uneven_part(c, rank, 0); });
  return all_gather_into(c, "all_gather_uneven", zeros_like(c, all), all);
}
Started start_all_gather_single(const Case& c) {
  const torch::Tensor mine = in_layout(c.layout, c.values(c.rank()));
  const torch::Tensor output = in_layout(c.layout, c.zeros(with_rows(c, rows_of(c) * c.size())));
  Work work = call(
      c, [&] { all_gather(output, mine, c.group); }, [&] { return all_gather_async(output, mine, c.group); });
  return {work, [=] {
            ranks::expect_equal(c.describe("all_gather_single"), output, joined(values_of_all(c)).view(output.sizes()));
          }};
}

Started gather_into(const Case& c, const char* name, Tensors outputs, const Tensors& all) {
  const torch::Tensor mine = in_layout(c.layout, all[static_cast<size_t>(c.rank())]);
  const Tensors before = for_each_rank(
      c, [&](int rank) { return outputs.empty() ? c.zeros({0}) : outputs[static_cast<size_t>(rank)].clone(); });
  Work work = call(
      c, [&] { gather(outputs, mine, c.root, c.group); }, [&] { return gather_async(outputs, mine, c.root, c.group); });
  return {work, [=] {
            if (c.rank() == c.root)
              expect_equal(c.describe(name), outputs, all);
            else if (!outputs.empty())
              expect_equal(c.describe(name) + ", not the root", outputs, before);
          }};
}
Started start_gather(const Case& c) {
  return gather_into(c, "gather", {}, values_of_all(c));
}
Started start_gather_uneven(const Case& c) {
  const Tensors all = for_each_rank(c, [&](int rank) { return uneven_part(c, rank, 0); });
  return gather_into(c, "gather_uneven", zeros_like(c, all), all);
}

Started start_scatter(const Case& c) {
  const torch::Tensor output = in_layout(c.layout, c.zeros(c.shape));
  Tensors inputs;
  if (c.rank() == c.root) inputs = in_layouts(c, for_each_rank(c, [&](int rank) { return c.values(c.root, rank); }));
  Work work = call(
      c, [&] { scatter(output, inputs, c.root, c.group); },
      [&] { return scatter_async(output, inputs, c.root, c.group); });
  return {work, [=] { ranks::expect_equal(c.describe("scatter"), output, c.values(c.root, c.rank())); }};
}

Started start_reduce_scatter(const Case& c) {
  const torch::Tensor output = in_layout(c.layout, c.zeros(c.shape));
  const Tensors inputs = in_layouts(c, for_each_rank(c, [&](int part) { return c.values(c.rank(), part); }));
  Work work = call(
      c, [&] { reduce_scatter(output, inputs, c.op, c.group); },
      [&] { return reduce_scatter_async(output, inputs, c.op, c.group); });
  return {work, [=] { expect_close(c.describe("reduce_scatter"), output, reduced(c, values_of_all(c, c.rank()))); }};
}
Started start_reduce_scatter_uneven(const Case& c) {
  const auto part = [c](int rank, int to) {
    return contribution(rank, c.seed + static_cast<uint64_t>(to), with_rows(c, uneven_rows(c, 0, to)), c.type);
  };
  const torch::Tensor output = in_layout(c.layout, torch::zeros_like(part(c.rank(), c.rank())));
  const Tensors inputs = in_layouts(c, for_each_rank(c, [&](int to) { return part(c.rank(), to); }));
  Work work = call(
      c, [&] { reduce_scatter(output, inputs, c.op, c.group); },
      [&] { return reduce_scatter_async(output, inputs, c.op, c.group); });
  return {work, [=] {
            const Tensors all = for_each_rank(c, [&](int rank) { return part(rank, c.rank()); });
            expect_close(c.describe("reduce_scatter_uneven"), output, reduced(c, all));
          }};
}
Started start_reduce_scatter_single(const Case& c) {
  const torch::Tensor output = in_layout(c.layout, c.zeros(c.shape));
  const Tensors parts = for_each_rank(c, [&](int part) { return c.values(c.rank(), part); });
  const torch::Tensor input = in_layout(c.layout, joined(parts).view(with_rows(c, rows_of(c) * c.size())));
  Work work = call(
      c, [&] { reduce_scatter(output, input, c.op, c.group); },
      [&] { return reduce_scatter_async(output, input, c.op, c.group); });
  return {work,
          [=] { expect_close(c.describe("reduce_scatter_single"), output, reduced(c, values_of_all(c, c.rank()))); }};
}

Started all_to_all_into(const Case& c, const char* name, Tensors outputs, const Tensors& inputs,
                        const Tensors& wanted) {
  const Tensors given = in_layouts(c, inputs);
  Work work = call(
      c, [&] { all_to_all(outputs, given, c.group); }, [&] { return all_to_all_async(outputs, given, c.group); });
  return {work, [=] { expect_equal(c.describe(name), outputs, wanted); }};
}
Started start_all_to_all(const Case& c) {
  const Tensors inputs = for_each_rank(c, [&](int to) { return c.values(c.rank(), to); });
  const Tensors wanted = for_each_rank(c, [&](int from) { return c.values(from, c.rank()); });
  return all_to_all_into(c, "all_to_all", c.seed % 2 == 0 ? Tensors{} : zeros_like(c, wanted), inputs, wanted);
}
Started start_all_to_all_uneven(const Case& c) {
  const Tensors inputs = for_each_rank(c, [&](int to) { return uneven_part(c, c.rank(), to); });
  const Tensors wanted = for_each_rank(c, [&](int from) { return uneven_part(c, from, c.rank()); });
  return all_to_all_into(c, "all_to_all_uneven", zeros_like(c, wanted), inputs, wanted);
}

Started all_to_all_rows(const Case& c, const char* name, const Tensors& inputs, const Tensors& wanted, bool lengths) {
  const auto rows = [](const Tensors& parts) {
    std::vector<int64_t> result;
    for (const torch::Tensor& part : parts) result.push_back(part.size(0));
    return result;
  };
  const torch::Tensor input = in_layout(c.layout, torch::cat(inputs));
  const torch::Tensor result = torch::cat(wanted);
  const torch::Tensor output = in_layout(c.layout, torch::zeros_like(result));
  const std::vector<int64_t> received = lengths ? rows(wanted) : std::vector<int64_t>{};
  const std::vector<int64_t> sent = lengths ? rows(inputs) : std::vector<int64_t>{};
  Work work = call(
      c, [&] { all_to_all(output, input, received, sent, c.group); },
      [&] { return all_to_all_async(output, input, received, sent, c.group); });
  return {work, [=] { ranks::expect_equal(c.describe(name), output, result); }};
}
Started start_all_to_all_single(const Case& c) {
  const auto part = [&](int from, int to) { return c.values(from, to).reshape(with_rows(c, rows_of(c))); };
  return all_to_all_rows(c, "all_to_all_single", for_each_rank(c, [&](int to) { return part(c.rank(), to); }),
                         for_each_rank(c, [&](int from) { return part(from, c.rank()); }), false);
}
Started start_all_to_all_lengths(const Case& c) {
  return all_to_all_rows(c, "all_to_all_lengths",
                         for_each_rank(c, [&](int to) { return uneven_part(c, c.rank(), to); }),
                         for_each_rank(c, [&](int from) { return uneven_part(c, from, c.rank()); }), true);
}

Started start_barrier(const Case& c) {
  return {call(
              c, [&] { barrier(c.group); }, [&] { return barrier_async(c.group); }),
          [] {}};
}

// Everyone's tensor to the next rank. In the blocking form rank 0 sends first and the others pass on.
Started start_ring(const Case& c) {
  const int next = (c.rank() + 1) % c.size();
  const int previous = (c.rank() + c.size() - 1) % c.size();
  if (c.size() == 1) return {Work(), [] {}};
  const torch::Tensor mine = in_layout(c.layout, c.values(c.rank()));
  const torch::Tensor other = in_layout(c.layout, c.zeros(c.shape));
  const auto blocking = [&] {
    if (c.rank() == 0) send(mine, next, c.group);
    recv(other, previous, c.group);
    if (c.rank() != 0) send(mine, next, c.group);
  };
  const auto started = [&] {
    const Work sent = isend(mine, next, c.group);
    return irecv(other, previous, c.group).then([sent] { sent.wait(); });
  };
  Work work = call(c, blocking, started);
  return {work, [=] { ranks::expect_equal(c.describe("ring"), other, c.values(previous)); }};
}

// A message from everyone to everyone else, all at once.
Started start_batch(const Case& c) {
  const Tensors received = in_layouts(c, for_each_rank(c, [&](int) { return c.zeros(c.shape); }));
  std::vector<P2POp> messages;
  for (int peer = 0; peer < c.size(); ++peer) {
    if (peer == c.rank()) continue;
    const torch::Tensor sent = in_layout(c.layout, c.values(c.rank(), peer));
    messages.push_back({P2POp::Kind::send, sent, peer, c.group});
    messages.push_back({P2POp::Kind::recv, received[static_cast<size_t>(peer)], peer, c.group});
  }
  const std::vector<Work> works = batch_isend_irecv(messages);
  const auto wait = [works] {
    for (const Work& work : works) work.wait();
  };
  if (!c.async) wait();
  return {Work().then(wait), [=] {
            for (int peer = 0; peer < c.size(); ++peer)
              if (peer != c.rank())
                ranks::expect_equal(c.describe("batch"), received[static_cast<size_t>(peer)], c.values(peer, c.rank()));
          }};
}

void expect_equal(const std::string& what, const std::vector<std::string>& got, const Case& c) {
  if (got.size() != static_cast<size_t>(c.size()))
    throw Mismatch(fmt::format("{}: {} objects, not {}", what, got.size(), c.size()));
  for (int rank = 0; rank < c.size(); ++rank)
    ranks::expect_equal(what, got[static_cast<size_t>(rank)], object_of(rank, c.seed));
}
Started start_all_gather_object(const Case& c) {
  const std::vector<std::string> all = all_gather_object(object_of(c.rank(), c.seed), c.group);
  return {Work(), [=] { expect_equal(c.describe("all_gather_object"), all, c); }};
}
Started start_broadcast_object(const Case& c) {
  const std::string object = broadcast_object(object_of(c.rank(), c.seed), c.root, c.group);
  return {Work(), [=] { ranks::expect_equal(c.describe("broadcast_object"), object, object_of(c.root, c.seed)); }};
}
Started start_gather_object(const Case& c) {
  const std::vector<std::string> all = gather_object(object_of(c.rank(), c.seed), c.root, c.group);
  return {Work(), [=] {
            if (c.rank() == c.root) expect_equal(c.describe("gather_object"), all, c);
            if (c.rank() != c.root && !all.empty()) throw Mismatch("gather_object: objects where there is no root");
          }};
}
Started start_scatter_object(const Case& c) {
  std::vector<std::string> objects;
  if (c.rank() == c.root)
    for (int rank = 0; rank < c.size(); ++rank) objects.push_back(object_of(rank, c.seed));
  const std::string object = scatter_object(objects, c.root, c.group);
  return {Work(), [=] { ranks::expect_equal(c.describe("scatter_object"), object, object_of(c.rank(), c.seed)); }};
}

}  // namespace

torch::Tensor Case::values(int rank, int part) const {
  return contribution(rank, seed + 100 * static_cast<uint64_t>(part), shape, type);
}

torch::Tensor Case::zeros(const Shape& of) const {
  return torch::zeros(of, type);
}

std::string Case::describe(const std::string& kind) const {
  return fmt::format("rank {} of {}: {}{} of {} {}{} {}, root {}, seed {}", rank(), size(), kind, async ? "_async" : "",
                     comm::to_string(op), c10::str(type), c10::str(at::IntArrayRef(shape)), to_string(layout), root,
                     seed);
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {.name = "all_reduce", .reduces = true, .start = start_all_reduce},
      {.name = "reduce", .reduces = true, .start = start_reduce},
      {.name = "broadcast", .start = start_broadcast},
      {.name = "all_gather", .start = start_all_gather},
      {.name = "all_gather_new", .start = start_all_gather_new},
      {.name = "all_gather_uneven", .start = start_all_gather_uneven},
      {.name = "all_gather_single", .start = start_all_gather_single},
      {.name = "gather", .start = start_gather},
      {.name = "gather_uneven", .start = start_gather_uneven},
      {.name = "scatter", .start = start_scatter},
      {.name = "reduce_scatter", .reduces = true, .start = start_reduce_scatter},
      {.name = "reduce_scatter_uneven", .reduces = true, .start = start_reduce_scatter_uneven},
      {.name = "reduce_scatter_single", .reduces = true, .start = start_reduce_scatter_single},
      {.name = "all_to_all", .start = start_all_to_all},
      {.name = "all_to_all_uneven", .start = start_all_to_all_uneven},
      {.name = "all_to_all_single", .start = start_all_to_all_single},
      {.name = "all_to_all_lengths", .start = start_all_to_all_lengths},
      {.name = "barrier", .moves_tensors = false, .start = start_barrier},
      {.name = "ring", .start = start_ring},
      {.name = "batch", .start = start_batch},
      {.name = "all_gather_object", .moves_tensors = false, .start = start_all_gather_object},
      {.name = "broadcast_object", .moves_tensors = false, .start = start_broadcast_object},
      {.name = "gather_object", .moves_tensors = false, .start = start_gather_object},
      {.name = "scatter_object", .moves_tensors = false, .start = start_scatter_object},
      {.name = "all_reduce_same_bits", .reduces = true, .start = start_all_reduce_same_bits},
  };
  return all;
}

const Kind& find_kind(const std::string& name) {
  for (const Kind& kind : kinds())
    if (kind.name == name) return kind;
  throw UsageError("no kind of operation called {}; see kinds() in cases.cc", name);
}

void run(const Kind& kind, const Case& c) {
  const Started started = kind.start(c);
  started.work.wait();
  started.check();
}

}  // namespace trireme::ranks
