#include "trireme/comm/engine/shm.h"

#include <utility>

namespace trireme {
namespace {

class ShmEngine : public Engine {
 public:
  ShmEngine(std::shared_ptr<Store> store, std::unique_ptr<shm::Group> group)
      : store_(std::move(store)), group_(std::move(group)) {}

  const char* name() const override { return "shm"; }
  RankInfo me() const override { return {group_->rank(), group_->size()}; }

  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) override {
    group_->all_reduce(data, elements, dtype, op);
  }
  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    group_->reduce(data, elements, dtype, op, root);
  }
  void broadcast(void* data, size_t elements, DType dtype, int root) override {
    group_->broadcast(data, elements, dtype, root);
  }
  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    group_->all_gather_uneven(input, counts, dtype, output);
  }
  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    group_->gather(input, counts, dtype, output, root);
  }
  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    group_->scatter(input, counts, dtype, output, root);
  }
  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    group_->reduce_scatter_uneven(input, counts, dtype, op, output);
  }
  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    group_->all_to_all(input, sent, dtype, output, received);
  }
  void barrier() override { group_->barrier(); }

  void send(const void* data, size_t elements, DType dtype, int to) override {
    group_->send(data, elements, dtype, to);
  }
  void recv(void* data, size_t elements, DType dtype, int from) override { group_->recv(data, elements, dtype, from); }

  void abort(std::string_view reason) override { group_->abort(reason); }

 private:
  const std::shared_ptr<Store> store_;  // where the ends of a channel meet; outlives the group
  const std::unique_ptr<shm::Group> group_;
};

}  // namespace

std::unique_ptr<Engine> make_shm_engine(std::shared_ptr<Store> store, const shm::Group::Options& options,
                                        Deadline deadline) {
  auto group = shm::Group::join(*store, options, deadline);
  return std::make_unique<ShmEngine>(std::move(store), std::move(group));
}

}  // namespace trireme
