#include "trireme/comm/engine/reporting.h"

#include "trireme/core/error.h"

namespace trireme {
namespace {

class ReportingEngine final : public Engine {
 public:
  ReportingEngine(std::unique_ptr<Engine> engine, ReportWait report)
      : engine_(std::move(engine)), report_(std::move(report)) {}

  const char* name() const override { return engine_->name(); }
  RankInfo me() const override { return engine_->me(); }

  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) override {
    run("all_reduce", [&] { engine_->all_reduce(data, elements, dtype, op); });
  }
  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    run("reduce", [&] { engine_->reduce(data, elements, dtype, op, root); });
  }
  void broadcast(void* data, size_t elements, DType dtype, int root) override {
    run("broadcast", [&] { engine_->broadcast(data, elements, dtype, root); });
  }
  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    run("all_gather", [&] { engine_->all_gather(input, counts, dtype, output); });
  }
  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    run("gather", [&] { engine_->gather(input, counts, dtype, output, root); });
  }
  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    run("scatter", [&] { engine_->scatter(input, counts, dtype, output, root); });
  }
  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    run("reduce_scatter", [&] { engine_->reduce_scatter(input, counts, dtype, op, output); });
  }
  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    run("all_to_all", [&] { engine_->all_to_all(input, sent, dtype, output, received); });
  }
  void barrier() override {
    run("barrier", [&] { engine_->barrier(); });
  }
  void send(const void* data, size_t elements, DType dtype, int to) override {
    run(
        "send", [&] { engine_->send(data, elements, dtype, to); }, to);
  }
  void recv(void* data, size_t elements, DType dtype, int from) override {
    run(
        "recv", [&] { engine_->recv(data, elements, dtype, from); }, from);
  }
  void abort(std::string_view reason) override { engine_->abort(reason); }

 private:
  template <typename F>
  void run(const char* operation, const F& f, int peer = -1) {
    try {
      f();
    } catch (const PeerError&) {
      report_(operation, peer >= 0 ? std::vector{peer} : others());
      throw;
    }
  }

  std::vector<int> others() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < me().size; ++rank)
      if (rank != me().rank) ranks.push_back(rank);
    return ranks;
  }

  const std::unique_ptr<Engine> engine_;
  const ReportWait report_;
};

}  // namespace

std::unique_ptr<Engine> make_reporting_engine(std::unique_ptr<Engine> engine, ReportWait report) {
  return std::make_unique<ReportingEngine>(std::move(engine), std::move(report));
}

}  // namespace trireme
