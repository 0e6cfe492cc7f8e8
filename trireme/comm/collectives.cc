#include "trireme/comm/collectives.h"

#include <torch/torch.h>

#include <atomic>

#include "trireme/comm/collective_count.h"
#include "trireme/comm/dtype.h"
#include "trireme/comm/engine_backend.h"
#include "trireme/comm/group_state.h"
#include "trireme/comm/work_state.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

enum class Mode { sync, async };

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// NCCL gives no work for a synchronous operation: it is in the current stream already.
void finish(const WorkPtr& work) {
  if (work) work->wait();
}

void check_rank(const Group& group, int rank, const char* what) {
  group.state();  // a member?
  if (rank < 0 || rank >= group.size())
    throw UsageError("rank {}: {} rank {}, but the group has ranks 0 to {}", group.rank(), what, rank,
                     group.size() - 1);
}

std::atomic<int64_t> g_collectives = 0;

c10d::Backend& backend_for(const torch::Tensor& tensor, const Group& group) {
  ++g_collectives;
  if (!tensor.defined()) throw UsageError("rank {}: an undefined tensor", group.rank());
  return group.state().backend_for(tensor.device());
}

void fill_like(Tensors& outputs, const torch::Tensor& example, int count) {
  if (outputs.empty())
    for (int i = 0; i < count; ++i) outputs.push_back(torch::empty_like(example, torch::MemoryFormat::Contiguous));
}

// As an operator in place does: those who remember a version see that the values are others.
void note_write(const torch::Tensor& tensor) {
  if (tensor.defined() && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

void note_writes(const Tensors& tensors) {
  for (const torch::Tensor& tensor : tensors) note_write(tensor);
}

WorkPtr start_all_reduce(const torch::Tensor& tensor, ReduceOp op, const Group& group, Mode mode) {
  Tensors tensors{tensor};
  note_write(tensor);
  return backend_for(tensor, group).allreduce(tensors, {.reduceOp = comm::to_c10d(op), .asyncOp = mode == Mode::async});
}

WorkPtr start_reduce(const torch::Tensor& tensor, int root, ReduceOp op, const Group& group, Mode mode) {
  check_rank(group, root, "reduce to");
  Tensors tensors{tensor};
  if (group.rank() == root) note_write(tensor);
  return backend_for(tensor, group)
      .reduce(tensors, {.reduceOp = comm::to_c10d(op), .rootRank = root, .asyncOp = mode == Mode::async});
}

WorkPtr start_broadcast(const torch::Tensor& tensor, int root, const Group& group, Mode mode) {
  check_rank(group, root, "broadcast from");
  Tensors tensors{tensor};
  note_write(tensor);
  return backend_for(tensor, group).broadcast(tensors, {.rootRank = root, .asyncOp = mode == Mode::async});
}

WorkPtr start_all_gather(Tensors& outputs, const torch::Tensor& input, const Group& group, Mode mode) {
  c10d::Backend& backend = backend_for(input, group);
  fill_like(outputs, input, group.size());
  note_writes(outputs);
  std::vector<Tensors> lists{outputs};
  Tensors inputs{input};
  return backend.allgather(lists, inputs, {.asyncOp = mode == Mode::async});
}

WorkPtr start_all_gather(const torch::Tensor& output, const torch::Tensor& input, const Group& group, Mode mode) {
  torch::Tensor to = output, from = input;
  note_write(output);
  return backend_for(input, group)._allgather_base(to, from, {.asyncOp = mode == Mode::async});
}

WorkPtr start_gather(Tensors& outputs, const torch::Tensor& input, int root, const Group& group, Mode mode) {
  check_rank(group, root, "gather on");
  if (group.rank() == root) fill_like(outputs, input, group.size());
  std::vector<Tensors> lists;
  if (!outputs.empty()) lists.push_back(outputs);
  if (group.rank() == root) note_writes(outputs);
  Tensors inputs{input};
  return backend_for(input, group).gather(lists, inputs, {.rootRank = root, .asyncOp = mode == Mode::async});
}

WorkPtr start_scatter(const torch::Tensor& output, const Tensors& inputs, int root, const Group& group, Mode mode) {
  check_rank(group, root, "scatter from");
  Tensors outputs{output};
  note_write(output);
  std::vector<Tensors> lists;
  if (group.rank() == root) lists.push_back(inputs);
  return backend_for(output, group).scatter(outputs, lists, {.rootRank = root, .asyncOp = mode == Mode::async});
}

WorkPtr start_reduce_scatter(const torch::Tensor& output, const Tensors& inputs, ReduceOp op, const Group& group,
                             Mode mode) {
  Tensors outputs{output};
  note_write(output);
  std::vector<Tensors> lists{inputs};
  return backend_for(output, group)
      .reduce_scatter(outputs, lists, {.reduceOp = comm::to_c10d(op), .asyncOp = mode == Mode::async});
}

WorkPtr start_reduce_scatter(const torch::Tensor& output, const torch::Tensor& input, ReduceOp op, const Group& group,
                             Mode mode) {
  torch::Tensor to = output, from = input;
  note_write(output);
  return backend_for(output, group)
      ._reduce_scatter_base(to, from, {.reduceOp = comm::to_c10d(op), .asyncOp = mode == Mode::async});
}

WorkPtr start_all_to_all(Tensors& outputs, const Tensors& inputs, const Group& group, Mode mode) {
  group.state();
  if (inputs.size() != static_cast<size_t>(group.size()))
    throw UsageError("rank {}: all_to_all: {} inputs for {} ranks", group.rank(), inputs.size(), group.size());
  if (outputs.empty())
    for (const torch::Tensor& input : inputs) outputs.push_back(torch::empty_like(input));
  Tensors to = outputs, from = inputs;
  note_writes(outputs);
  return backend_for(inputs[0], group).alltoall(to, from, {.asyncOp = mode == Mode::async});
}

WorkPtr start_all_to_all(const torch::Tensor& output, const torch::Tensor& input, std::vector<int64_t> output_lengths,
                         std::vector<int64_t> input_lengths, const Group& group, Mode mode) {
  torch::Tensor to = output, from = input;
  note_write(output);
  return backend_for(input, group)
      .alltoall_base(to, from, output_lengths, input_lengths, {.asyncOp = mode == Mode::async});
}

WorkPtr start_barrier(const Group& group, Mode mode) {
  c10d::BarrierOptions options;
  options.asyncOp = mode == Mode::async;
  return group.state().cpu->barrier(options);
}

// The lengths of everyone's bytes.
std::vector<size_t> all_lengths(size_t mine, const Group& group) {
  std::vector<size_t> lengths(static_cast<size_t>(group.size()));
  const std::vector<size_t> counts(lengths.size(), sizeof(size_t));
  group.state().cpu->run_now(
      [&](comm::Engine& engine) { engine.all_gather(&mine, counts, comm::DType::u8, lengths.data()); });
  return lengths;
}

std::vector<std::string> cut(const std::string& bytes, const std::vector<size_t>& lengths) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (const size_t length : lengths) {
    parts.push_back(bytes.substr(begin, length));
    begin += length;
  }
  return parts;
}

}  // namespace

int64_t comm::collectives_begun() {
  return g_collectives;
}

void all_reduce(const torch::Tensor& tensor, ReduceOp op, const Group& group) {
  finish(start_all_reduce(tensor, op, group, Mode::sync));
}
Work all_reduce_async(const torch::Tensor& tensor, ReduceOp op, const Group& group) {
  return make_work(start_all_reduce(tensor, op, group, Mode::async));
}

void reduce(const torch::Tensor& tensor, int root, ReduceOp op, const Group& group) {
  finish(start_reduce(tensor, root, op, group, Mode::sync));
}
Work reduce_async(const torch::Tensor& tensor, int root, ReduceOp op, const Group& group) {
  return make_work(start_reduce(tensor, root, op, group, Mode::async));
}

void broadcast(const torch::Tensor& tensor, int root, const Group& group) {
  finish(start_broadcast(tensor, root, group, Mode::sync));
}
Work broadcast_async(const torch::Tensor& tensor, int root, const Group& group) {
  return make_work(start_broadcast(tensor, root, group, Mode::async));
}

void all_gather(Tensors& outputs, const torch::Tensor& input, const Group& group) {
  finish(start_all_gather(outputs, input, group, Mode::sync));
}
Work all_gather_async(Tensors& outputs, const torch::Tensor& input, const Group& group) {
  return make_work(start_all_gather(outputs, input, group, Mode::async));
}
void all_gather(const torch::Tensor& output, const torch::Tensor& input, const Group& group) {
  finish(start_all_gather(output, input, group, Mode::sync));
}
Work all_gather_async(const torch::Tensor& output, const torch::Tensor& input, const Group& group) {
  return make_work(start_all_gather(output, input, group, Mode::async));
}

void gather(Tensors& outputs, const torch::Tensor& input, int root, const Group& group) {
  finish(start_gather(outputs, input, root, group, Mode::sync));
}
Work gather_async(Tensors& outputs, const torch::Tensor& input, int root, const Group& group) {
  return make_work(start_gather(outputs, input, root, group, Mode::async));
}

void scatter(const torch::Tensor& output, const Tensors& inputs, int root, const Group& group) {
  finish(start_scatter(output, inputs, root, group, Mode::sync));
}
Work scatter_async(const torch::Tensor& output, const Tensors& inputs, int root, const Group& group) {
  return make_work(start_scatter(output, inputs, root, group, Mode::async));
}

void reduce_scatter(const torch::Tensor& output, const Tensors& inputs, ReduceOp op, const Group& group) {
  finish(start_reduce_scatter(output, inputs, op, group, Mode::sync));
}
Work reduce_scatter_async(const torch::Tensor& output, const Tensors& inputs, ReduceOp op, const Group& group) {
  return make_work(start_reduce_scatter(output, inputs, op, group, Mode::async));
}
void reduce_scatter(const torch::Tensor& output, const torch::Tensor& input, ReduceOp op, const Group& group) {
  finish(start_reduce_scatter(output, input, op, group, Mode::sync));
}
Work reduce_scatter_async(const torch::Tensor& output, const torch::Tensor& input, ReduceOp op, const Group& group) {
  return make_work(start_reduce_scatter(output, input, op, group, Mode::async));
}

void all_to_all(Tensors& outputs, const Tensors& inputs, const Group& group) {
  finish(start_all_to_all(outputs, inputs, group, Mode::sync));
}
Work all_to_all_async(Tensors& outputs, const Tensors& inputs, const Group& group) {
  return make_work(start_all_to_all(outputs, inputs, group, Mode::async));
}
void all_to_all(const torch::Tensor& output, const torch::Tensor& input, const std::vector<int64_t>& output_lengths,
                const std::vector<int64_t>& input_lengths, const Group& group) {
  finish(start_all_to_all(output, input, output_lengths, input_lengths, group, Mode::sync));
}
Work all_to_all_async(const torch::Tensor& output, const torch::Tensor& input,
                      const std::vector<int64_t>& output_lengths, const std::vector<int64_t>& input_lengths,
                      const Group& group) {
  return make_work(start_all_to_all(output, input, output_lengths, input_lengths, group, Mode::async));
}

void barrier(const Group& group) {
  finish(start_barrier(group, Mode::sync));
}
Work barrier_async(const Group& group) {
  return make_work(start_barrier(group, Mode::async));
}

Work isend(const torch::Tensor& tensor, int to, const Group& group) {
  check_rank(group, to, "send to");
  Tensors tensors{tensor};
  return make_work(backend_for(tensor, group).send(tensors, to, 0));
}

Work irecv(const torch::Tensor& tensor, int from, const Group& group) {
  check_rank(group, from, "recv from");
  Tensors tensors{tensor};
  note_write(tensor);
  return make_work(backend_for(tensor, group).recv(tensors, from, 0));
}

void send(const torch::Tensor& tensor, int to, const Group& group) {
  check_rank(group, to, "send to");
  if (auto* backend = dynamic_cast<comm::EngineBackend*>(&backend_for(tensor, group)))
    backend->send_now(tensor, to);
  else
    isend(tensor, to, group).wait();
}

void recv(const torch::Tensor& tensor, int from, const Group& group) {
  check_rank(group, from, "recv from");
  auto* const backend = dynamic_cast<comm::EngineBackend*>(&backend_for(tensor, group));
  if (!backend) return irecv(tensor, from, group).wait();
  note_write(tensor);
  backend->recv_now(tensor, from);
}

std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations) {
  std::vector<Work> works;
  for (const P2POp& operation : operations)
    works.push_back(operation.kind == P2POp::Kind::send ? isend(operation.tensor, operation.peer, operation.group)
                                                        : irecv(operation.tensor, operation.peer, operation.group));
  return works;
}

std::vector<std::string> all_gather_object(std::string_view object, const Group& group) {
  const std::vector<size_t> lengths = all_lengths(object.size(), group);
  std::string all(comm::total(lengths), '\0');
  group.state().cpu->run_now(
      [&](comm::Engine& engine) { engine.all_gather(object.data(), lengths, comm::DType::u8, all.data()); });
  return cut(all, lengths);
}

std::string broadcast_object(std::string_view object, int root, const Group& group) {
  check_rank(group, root, "broadcast from");
  size_t length = object.size();
  std::string result(object);
  group.state().cpu->run_now([&](comm::Engine& engine) {
    engine.broadcast(&length, sizeof length, comm::DType::u8, root);
    result.resize(length);
    engine.broadcast(result.data(), length, comm::DType::u8, root);
  });
  return result;
}

std::vector<std::string> gather_object(std::string_view object, int root, const Group& group) {
  check_rank(group, root, "gather on");
  const std::vector<size_t> lengths = all_lengths(object.size(), group);
  const bool here = group.rank() == root;
  std::string all(here ? comm::total(lengths) : 0, '\0');
  group.state().cpu->run_now(
      [&](comm::Engine& engine) { engine.gather(object.data(), lengths, comm::DType::u8, all.data(), root); });
  return here ? cut(all, lengths) : std::vector<std::string>();
}

std::string scatter_object(const std::vector<std::string>& objects, int root, const Group& group) {
  check_rank(group, root, "scatter from");
  const auto size = static_cast<size_t>(group.size());
  if (group.rank() == root && objects.size() != size)
    throw UsageError("rank {}: scatter_object: {} objects for {} ranks", group.rank(), objects.size(), size);
  std::vector<size_t> lengths(size);
  std::string all;
  if (group.rank() == root)
    for (size_t i = 0; i < size; ++i) {
      lengths[i] = objects[i].size();
      all += objects[i];
    }
  std::string mine;
  group.state().cpu->run_now([&](comm::Engine& engine) {
    engine.broadcast(lengths.data(), size * sizeof(size_t), comm::DType::u8, root);
    mine.resize(lengths[static_cast<size_t>(group.rank())]);
    engine.scatter(all.data(), lengths, comm::DType::u8, mine.data(), root);
  });
  return mine;
}

}  // namespace trireme
