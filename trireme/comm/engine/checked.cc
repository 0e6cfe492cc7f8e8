#include "trireme/comm/engine/checked.h"

#include <numeric>
#include <vector>

#include "trireme/comm/engine/shm/operation.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

using shm::Kind;
using shm::Operation;

size_t sum(Engine::Counts counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

class CheckedEngine final : public Engine {
 public:
  explicit CheckedEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  const char* name() const override { return engine_->name(); }
  RankInfo me() const override { return engine_->me(); }

  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) override {
    check({.kind = Kind::all_reduce, .dtype = dtype, .op = op, .elements = elements});
    engine_->all_reduce(data, elements, dtype, op);
  }
  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    check({.kind = Kind::reduce, .dtype = dtype, .op = op, .root = root, .elements = elements});
    engine_->reduce(data, elements, dtype, op, root);
  }
  void broadcast(void* data, size_t elements, DType dtype, int root) override {
    check({.kind = Kind::broadcast, .dtype = dtype, .root = root, .elements = elements});
    engine_->broadcast(data, elements, dtype, root);
  }
  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    check({.kind = Kind::all_gather, .dtype = dtype, .elements = sum(counts), .parts = shm::digest(counts)});
    engine_->all_gather(input, counts, dtype, output);
  }
  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check({.kind = Kind::gather, .dtype = dtype, .root = root, .elements = sum(counts), .parts = shm::digest(counts)});
    engine_->gather(input, counts, dtype, output, root);
  }
  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check({.kind = Kind::scatter, .dtype = dtype, .root = root, .elements = sum(counts), .parts = shm::digest(counts)});
    engine_->scatter(input, counts, dtype, output, root);
  }
  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    check({.kind = Kind::reduce_scatter,
           .dtype = dtype,
           .op = op,
           .elements = sum(counts),
           .parts = shm::digest(counts)});
    engine_->reduce_scatter(input, counts, dtype, op, output);
  }
  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    check({.kind = Kind::all_to_all, .dtype = dtype});
    check_parts(sent, received);
    engine_->all_to_all(input, sent, dtype, output, received);
  }
  void barrier() override {
    check({.kind = Kind::barrier});
    engine_->barrier();
  }

  void send(const void* data, size_t elements, DType dtype, int to) override {
    engine_->send(data, elements, dtype, to);
  }
  void recv(void* data, size_t elements, DType dtype, int from) override { engine_->recv(data, elements, dtype, from); }
  void abort(std::string_view reason) override { engine_->abort(reason); }

 private:
  void check(Operation mine) {
    mine.sequence = ++sequence_;
    std::vector<Operation> all(ranks());
    gather_bytes(&mine, sizeof mine, all.data());
    if (const auto mismatch = shm::find_mismatch(all)) fail(*mismatch);
  }

  // What j sends to k must be what k expects.
  void check_parts(Counts sent, Counts received) {
    std::vector<size_t> mine(sent.begin(), sent.end());
    mine.insert(mine.end(), received.begin(), received.end());
    std::vector<size_t> all(mine.size() * ranks());
    gather_bytes(mine.data(), mine.size() * sizeof(size_t), all.data());
    for (size_t from = 0; from < ranks(); ++from)
      for (size_t to = 0; to < ranks(); ++to) {
        const size_t gives = all[from * mine.size() + to];
        const size_t expects = all[to * mine.size() + ranks() + from];
        if (gives != expects)
          fail(fmt::format("all_to_all #{}: rank {} sends {} elements to rank {}, which expects {}", sequence_, from,
                           gives, to, expects));
      }
  }

  void gather_bytes(const void* mine, size_t size, void* all) {
    const std::vector<size_t> counts(ranks(), size);
    engine_->all_gather(mine, counts, DType::u8, all);
  }

  [[noreturn]] void fail(const std::string& reason) {
    engine_->abort(reason);
    throw UsageError("{}", reason);
  }

  size_t ranks() const { return static_cast<size_t>(me().size); }

  const std::unique_ptr<Engine> engine_;
  uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Engine> make_checked_engine(std::unique_ptr<Engine> engine) {
  return std::make_unique<CheckedEngine>(std::move(engine));
}

}  // namespace trireme
