// An Engine as a c10d::Backend, so that libtorch's own code (the Reducer, process groups) uses our engines unaware.
//
//   auto backend = c10::make_intrusive<EngineBackend>(make_local_engine());
//   process_group->setBackend(torch::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
//
// It adds to the engine what a tensor has and bytes have not: types, layouts, devices, lists, and asynchrony. An
// operation that is asynchronous runs on a thread of this backend, in the order of the calls; one with asyncOp = false
// runs on the caller's thread when nothing is before it. Messages have a queue for each peer and direction.
// CUDA tensors are staged through the CPU.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "trireme/comm/engine/engine.h"
#include "trireme/comm/operation_queue.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::comm {

class EngineBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  enum class Asynchrony { allowed, messages_only };
  explicit EngineBackend(std::unique_ptr<Engine> engine, Asynchrony asynchrony = Asynchrony::allowed);
  ~EngineBackend() override;

  Engine& engine() { return *engine_; }
  const std::string getBackendName() const override { return engine_->name(); }
  void abort() override;
  void shutdown() override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_lengths,
                        std::vector<int64_t>& input_lengths, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  /// Something of our own in the order of the group's operations; returns when it is done.
  void run_now(const std::function<void(Engine&)>& task);
  /// The blocking forms that c10d has no flag for.
  void send_now(const at::Tensor& tensor, int to);
  void recv_now(const at::Tensor& tensor, int from);

 private:
  using Task = std::function<void(Engine&)>;
  WorkPtr submit(OperationQueue& queue, c10d::OpType type, const Tensors& results, Task task, bool async);
  static void keep_for_ever(const Task& task);
  OperationQueue& channel(int peer, bool outgoing);

  std::unique_ptr<Engine> engine_;
  const Asynchrony asynchrony_;
  std::atomic<int> under_way_ = 0;  // operations submitted and not ended
  Mutex mutex_;
  std::map<std::pair<int, bool>, std::unique_ptr<OperationQueue>> channels_ TRIREME_GUARDED_BY(mutex_);
  OperationQueue queue_;
};

}  // namespace trireme::comm
