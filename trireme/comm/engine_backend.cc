#include "trireme/comm/engine_backend.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/comm/dtype.h"
#include "trireme/comm/staging.h"
#include "trireme/core/error.h"
#include "trireme/watch/recorder.h"
#include "trireme/watch/ring.h"

namespace trireme::comm {
namespace {

using Tensors = EngineBackend::Tensors;
using c10d::OpType;

const at::Tensor& only(const Tensors& tensors, const char* what) {
  if (tensors.size() != 1) throw UsageError("{} takes one tensor for each rank, got {}", what, tensors.size());
  return tensors.front();
}

// Whether `part` is where `whole` has this rank's part: engines work in place then.
bool is_own_place(const at::Tensor& whole, const at::Tensor& part, int rank) {
  check_dense(whole), check_dense(part);
  return whole.is_contiguous() && part.is_contiguous() &&
         part.const_data_ptr() ==
             static_cast<const char*>(whole.const_data_ptr()) + static_cast<size_t>(rank) * part.nbytes();
}

// c10d's Work for an operation of an engine.
class EngineWork final : public c10d::Work {
 public:
  EngineWork(int rank, OpType type, Tensors results)
      : Work(rank, type),
        results_(std::move(results)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         devices_of(results_))) {}

  void end(const std::exception_ptr& error) {
    if (error)
      future_->setError(error);
    else
      future_->markCompleted(c10::IValue(results_));
    finish(error);
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  Tensors result() override { return results_; }

 private:
  static std::vector<c10::Device> devices_of(const Tensors& tensors) {
    std::vector<c10::Device> devices;
    for (const at::Tensor& tensor : tensors)
      if (!tensor.is_cpu() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
        devices.push_back(tensor.device());
    return devices;
  }

  Tensors results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace

EngineBackend::EngineBackend(std::unique_ptr<Engine> engine, Asynchrony asynchrony)
    : Backend(engine->me().rank, engine->me().size), engine_(std::move(engine)), asynchrony_(asynchrony) {}

EngineBackend::~EngineBackend() {
  // A program that ends in the middle of an operation must not wait for the others. An idle group just ends: the
  // others may still be reading what this rank gave them last.
  if (under_way_ != 0) abort();
}

void EngineBackend::abort() {
  engine_->abort("the group was destroyed");
}

void EngineBackend::shutdown() {
  abort();
}

// An operation that was given up may still be under way inside Gloo, which has only the tensors' addresses. A group
// fails once, so this is little.
void EngineBackend::keep_for_ever(const Task& task) {
  static auto* const kept = new std::vector<Task>;
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  kept->push_back(task);
}

EngineBackend::WorkPtr EngineBackend::submit(OperationQueue& queue, OpType type, const Tensors& results, Task task,
                                             bool async) {
  if (type != OpType::SEND)
    for (const at::Tensor& result : results) check_writable(result);
  if (results.size() > 1) check_apart(results);
  auto work = c10::make_intrusive<EngineWork>(getRank(), type, results);
  const auto run = [this, work, task = std::move(task), asked = watch::now_ns()] {
    const watch::EnqueuedAt enqueued(asked);
    try {
      const at::NoGradGuard no_grad;
      const at::DisableRecordFunctionGuard unobserved;  // our own copies do not count as the program's
      task(*engine_);
    } catch (...) {
      keep_for_ever(task);
      --under_way_;
      work->end(std::current_exception());
      return;
    }
    --under_way_;  // first: a caller that sees the end may destroy the group
    work->end(nullptr);
  };
  ++under_way_;
  // Two ranks that send to each other before they receive need asynchronous messages.
  if (async && (asynchrony_ == Asynchrony::allowed || &queue != &queue_))
    queue.post(run);
  else
    queue.run(run);
  return work;
}

OperationQueue& EngineBackend::channel(int peer, bool outgoing) {
  const std::lock_guard lock(mutex_);
  auto& queue = channels_[{peer, outgoing}];
  if (!queue) queue = std::make_unique<OperationQueue>();
  return *queue;
}

EngineBackend::WorkPtr EngineBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Staged staged(only(tensors, "all_reduce"));
  const ReduceOp op = from_c10d(options.reduceOp);
  const Elements all = for_reduction(staged.dense(), op);
  return submit(
      queue_, OpType::ALLREDUCE, tensors,
      [=](Engine& engine) {
        engine.all_reduce(all.data, all.dims, all.dtype, op);
        staged.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::allreduce_coalesced(Tensors& tensors,
                                                          const c10d::AllreduceCoalescedOptions& options) {
  if (tensors.empty()) throw UsageError("all_reduce of no tensor at all");
  const Joined joined(tensors);
  const ReduceOp op = from_c10d(options.reduceOp);
  joined.pack();
  const Elements all = for_reduction(joined.buffer(), op);
  return submit(
      queue_, OpType::ALLREDUCE_COALESCED, tensors,
      [=](Engine& engine) {
        engine.all_reduce(all.data, all.dims, all.dtype, op);
        joined.unpack();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Staged staged(only(tensors, "reduce"));
  const ReduceOp op = from_c10d(options.reduceOp);
  const Elements all = for_reduction(staged.dense(), op);
  const int root = static_cast<int>(options.rootRank);
  return submit(
      queue_, OpType::REDUCE, tensors,
      [=](Engine& engine) {
        engine.reduce(all.data, all.dims, all.dtype, op, root);
        if (engine.me().rank == root) staged.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Staged staged(only(tensors, "broadcast"));
  const Elements all = for_moving(staged.dense());
  const int root = static_cast<int>(options.rootRank);
  return submit(
      queue_, OpType::BROADCAST, tensors,
      [=](Engine& engine) {
        engine.broadcast(all.data, all.dims, all.dtype, root);
        if (engine.me().rank != root) staged.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, "all_gather");
  if (outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(getSize()))
    throw UsageError("all_gather: {} outputs for {} ranks", outputs.empty() ? 0 : outputs[0].size(), getSize());
  check_same_size("all_gather, this rank's output", outputs[0][static_cast<size_t>(getRank())], input);
  const Staged staged(input);
  const Joined joined(outputs[0]);
  const Elements mine = for_moving(staged.dense());
  const std::vector<size_t> counts = joined.counts(moving_factor(input.scalar_type()));
  return submit(
      queue_, OpType::ALLGATHER, outputs[0],
      [=, keep = staged](Engine& engine) {
        engine.all_gather(mine.data, counts, mine.dtype, joined.buffer().data_ptr());
        joined.unpack();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& options) {
  if (output.numel() != input.numel() * getSize() || output.scalar_type() != input.scalar_type())
    throw UsageError("all_gather: an output of {}[{}] for {} inputs of {}[{}]", c10::str(output.scalar_type()),
                     output.numel(), getSize(), c10::str(input.scalar_type()), input.numel());
  const Staged from(is_own_place(output, input, getRank()) ? input : apart_from(output, input));
  const Staged to(output);
  const Elements mine = for_moving(from.dense());
  const std::vector<size_t> counts(static_cast<size_t>(getSize()), mine.count());
  return submit(
      queue_, OpType::_ALLGATHER_BASE, {output},
      [=, keep = from](Engine& engine) {
        engine.all_gather(mine.data, counts, mine.dtype, to.dense().data_ptr());
        to.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                             const c10d::GatherOptions& options) {
  const Staged staged(only(inputs, "gather"));
  const Elements mine = for_moving(staged.dense());
  const int root = static_cast<int>(options.rootRank);
  const bool listed = !outputs.empty() && !outputs[0].empty();
  if (!listed && root == getRank()) throw UsageError("gather: rank {} is the root and gives no outputs", root);
  if (listed && outputs[0].size() != static_cast<size_t>(getSize()))
    throw UsageError("gather: {} outputs for {} ranks", outputs[0].size(), getSize());
  const auto joined = listed ? std::make_shared<Joined>(outputs[0]) : nullptr;
  const std::vector<size_t> counts = listed ? joined->counts(moving_factor(staged.dense().scalar_type()))
                                            : std::vector<size_t>(static_cast<size_t>(getSize()), mine.count());
  if (counts[static_cast<size_t>(getRank())] != mine.count())
    throw UsageError("gather: rank {} gives {} elements, its output holds {}", getRank(), mine.count(),
                     counts[static_cast<size_t>(getRank())]);
  return submit(
      queue_, OpType::GATHER, listed ? outputs[0] : Tensors{},
      [=, keep = staged](Engine& engine) {
        const bool here = engine.me().rank == root;
        engine.gather(mine.data, counts, mine.dtype, here ? joined->buffer().data_ptr() : nullptr, root);
        if (here) joined->unpack();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                              const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  const Staged staged(output);
  const Elements mine = for_moving(staged.dense());
  const int root = static_cast<int>(options.rootRank);
  const bool here = root == getRank();
  if (here && (inputs.size() != 1 || inputs[0].size() != static_cast<size_t>(getSize())))
    throw UsageError("scatter: {} inputs on the root for {} ranks", inputs.empty() ? 0 : inputs[0].size(), getSize());
  if (here)
    for (const at::Tensor& input : inputs[0]) check_same_size("scatter, an input", input, output);
  const auto joined = here ? std::make_shared<Joined>(inputs[0]) : nullptr;
  if (here) joined->pack();
  const std::vector<size_t> counts(static_cast<size_t>(getSize()), mine.count());
  return submit(
      queue_, OpType::SCATTER, outputs,
      [=](Engine& engine) {
        engine.scatter(joined ? joined->buffer().data_ptr() : nullptr, counts, mine.dtype, mine.data, root);
        staged.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  if (inputs.size() != 1 || inputs[0].size() != static_cast<size_t>(getSize()))
    throw UsageError("reduce_scatter: {} inputs for {} ranks", inputs.empty() ? 0 : inputs[0].size(), getSize());
  check_same_size("reduce_scatter, this rank's input", inputs[0][static_cast<size_t>(getRank())], output);
  const Staged staged(output);
  const Joined joined(inputs[0]);
  joined.pack();
  const ReduceOp op = from_c10d(options.reduceOp);
  const Elements all = for_reduction(joined.buffer(), op);
  const std::vector<size_t> counts = joined.counts((output.is_complex() ? 2 : 1));
  return submit(
      queue_, OpType::REDUCE_SCATTER, outputs,
      [=, keep = joined](Engine& engine) {
        engine.reduce_scatter(all.data, counts, all.dtype, op, staged.dense().data_ptr());
        staged.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& options) {
  if (input.numel() != output.numel() * getSize() || output.scalar_type() != input.scalar_type())
    throw UsageError("reduce_scatter: an input of {}[{}] for {} outputs of {}[{}]", c10::str(input.scalar_type()),
                     input.numel(), getSize(), c10::str(output.scalar_type()), output.numel());
  const Staged from(is_own_place(input, output, getRank()) ? input : apart_from(output, input));
  const Staged to(output);
  const ReduceOp op = from_c10d(options.reduceOp);
  const Elements all = for_reduction(from.dense(), op);
  const std::vector<size_t> counts(static_cast<size_t>(getSize()), all.count() / static_cast<size_t>(getSize()));
  return submit(
      queue_, OpType::_REDUCE_SCATTER_BASE, {output},
      [=, keep = from](Engine& engine) {
        engine.reduce_scatter(all.data, counts, all.dtype, op, to.dense().data_ptr());
        to.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                               const c10d::AllToAllOptions& options) {
  if (outputs.size() != static_cast<size_t>(getSize()) || inputs.size() != outputs.size())
    throw UsageError("all_to_all: {} outputs and {} inputs for {} ranks", outputs.size(), inputs.size(), getSize());
  const Joined from(inputs);
  const Joined to(outputs);
  check_same_size("all_to_all, what this rank sends itself", inputs[static_cast<size_t>(getRank())],
                  outputs[static_cast<size_t>(getRank())]);
  from.pack();
  const Elements sent = for_moving(from.buffer());
  const size_t factor = moving_factor(from.buffer().scalar_type());
  return submit(
      queue_, OpType::ALLTOALL, outputs,
      [=](Engine& engine) {
        engine.all_to_all(sent.data, from.counts(factor), sent.dtype, to.buffer().data_ptr(), to.counts(factor));
        to.unpack();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<int64_t>& output_lengths,
                                                    std::vector<int64_t>& input_lengths,
                                                    const c10d::AllToAllOptions& options) {
  if (output.scalar_type() != input.scalar_type())
    throw UsageError("all_to_all: input of type {}, output of type {}", c10::str(input.scalar_type()),
                     c10::str(output.scalar_type()));
  const std::vector<size_t> sent = row_counts(input, input_lengths, getSize(), "input");
  const std::vector<size_t> received = row_counts(output, output_lengths, getSize(), "output");
  const Staged from(apart_from(output, input));
  const Staged to(output);
  const Elements all = for_moving(from.dense());
  return submit(
      queue_, OpType::ALLTOALL_BASE, {output},
      [=, keep = from](Engine& engine) {
        engine.all_to_all(all.data, sent, all.dtype, to.dense().data_ptr(), received);
        to.write_back();
      },
      options.asyncOp);
}

EngineBackend::WorkPtr EngineBackend::send(Tensors& tensors, int to, int /*tag*/) {
  const Staged staged(only(tensors, "send"));
  const Elements all = for_moving(staged.dense());
  return submit(
      channel(to, true), OpType::SEND, tensors,
      [=, keep = staged](Engine& engine) { engine.send(all.data, all.count(), all.dtype, to); }, true);
}

EngineBackend::WorkPtr EngineBackend::recv(Tensors& tensors, int from, int /*tag*/) {
  const Staged staged(only(tensors, "recv"));
  const Elements all = for_moving(staged.dense());
  return submit(
      channel(from, false), OpType::RECV, tensors,
      [=](Engine& engine) {
        engine.recv(all.data, all.count(), all.dtype, from);
        staged.write_back();
      },
      true);
}

void EngineBackend::run_now(const std::function<void(Engine&)>& task) {
  queue_.run([&] { task(*engine_); });
}

void EngineBackend::send_now(const at::Tensor& tensor, int to) {
  const Staged staged(tensor);
  const Elements all = for_moving(staged.dense());
  channel(to, true).run([&] { engine_->send(all.data, all.count(), all.dtype, to); });
}

void EngineBackend::recv_now(const at::Tensor& tensor, int from) {
  const at::NoGradGuard no_grad;
  check_writable(tensor);
  const Staged staged(tensor);
  const Elements all = for_moving(staged.dense());
  channel(from, false).run([&] {
    engine_->recv(all.data, all.count(), all.dtype, from);
    staged.write_back();
  });
}

EngineBackend::WorkPtr EngineBackend::barrier(const c10d::BarrierOptions& options) {
  return submit(
      queue_, OpType::BARRIER, {}, [](Engine& engine) { engine.barrier(); }, options.asyncOp);
}

}  // namespace trireme::comm
