#include "trireme/comm/engine/local.h"

#include <cstring>

namespace trireme::comm {
namespace {

class LocalEngine final : public Engine {
 public:
  using Engine::Engine;
  const char* name() const override { return "local"; }

 private:
  // The sum, product, minimum, maximum and average of one are itself.
  void do_all_reduce(const Operation& /*call*/, void* /*data*/) override {}
  void do_reduce(const Operation& /*call*/, void* /*data*/) override {}
  void do_broadcast(const Operation& /*call*/, void* /*data*/) override {}
  void do_all_gather(const Operation& call, const void* input, Counts /*counts*/, void* output) override {
    copy(call, input, output);
  }
  void do_gather(const Operation& call, const void* input, Counts /*counts*/, void* output) override {
    copy(call, input, output);
  }
  void do_scatter(const Operation& call, const void* input, Counts /*counts*/, void* output) override {
    copy(call, input, output);
  }
  void do_reduce_scatter(const Operation& call, const void* input, Counts /*counts*/, void* output) override {
    copy(call, input, output);
  }
  void do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) override {
    if (sent[0] != received[0])
      throw UsageError("all_to_all: rank 0 sends {} elements to itself but expects {}", sent[0], received[0]);
    copy({.dtype = call.dtype, .dims = sent[0]}, input, output);
  }
  void do_barrier(const Operation& /*call*/) override {}
  void do_send(const Operation& /*call*/, const void* /*data*/) override {}  // there is no peer: refused before
  void do_recv(const Operation& /*call*/, void* /*data*/) override {}
  void do_abort(const Blame& /*blame*/) override {}
  bool compares_itself() const override { return true; }

  static void copy(const Operation& call, const void* input, void* output) {
    if (call.dims.elements != 0 && input != output)
      std::memmove(output, input, call.dims.elements * size_of(call.dtype));
  }
};

}  // namespace

std::unique_ptr<Engine> make_local_engine(std::string group) {
  return std::make_unique<LocalEngine>(Member{.me = {0, 1}, .group = std::move(group)});
}

}  // namespace trireme::comm
