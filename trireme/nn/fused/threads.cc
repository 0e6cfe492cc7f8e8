#include "trireme/nn/fused/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>
#include <exception>

#include "trireme/core/log.h"

namespace trireme::nn::fused {
namespace {

/// GNU's OpenMP library and LLVM's both have it: calls the function once on each thread of a team.
using RunTeam = void (*)(void (*function)(void*), void* data, unsigned threads, unsigned flags);

RunTeam find_run_team() {
  constexpr const char* kName = "GOMP_parallel";
  void* found = ::dlsym(RTLD_DEFAULT, kName);
  if (found == nullptr)  // where libtorch was loaded for one library alone
    if (void* library = ::dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD)) found = ::dlsym(library, kName);
  if (found == nullptr) log_warning("no OpenMP library has {}(): fused layers run on one thread", kName);
  return reinterpret_cast<RunTeam>(found);
}

class Team {
 public:
  Team(int64_t count, const std::function<void(int64_t)>& f) : count_(count), f_(f) {}

  void run(RunTeam run_team) {
    run_team([](void* self) { static_cast<Team*>(self)->work(); }, this, /*threads=*/0, /*flags=*/0);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Each thread takes the next piece of work, so that none waits long for another.
  void work() noexcept {
    for (int64_t next = next_++; next < count_; next = next_++) try {
        f_(next);
      } catch (...) {
        if (!failed_.test_and_set()) failure_ = std::current_exception();
      }
  }

  const int64_t count_;
  const std::function<void(int64_t)>& f_;
  std::atomic<int64_t> next_ = 0;
  std::atomic_flag failed_;
  std::exception_ptr failure_;
};

}  // namespace

void on_threads(int64_t count, const std::function<void(int64_t)>& f) {
  static const RunTeam run_team = find_run_team();
  at::internal::lazy_init_num_threads();
  if (count > 1 && run_team != nullptr && at::get_num_threads() > 1 && !at::in_parallel_region())
    return Team(count, f).run(run_team);
  for (int64_t i = 0; i < count; ++i) f(i);
}

}  // namespace trireme::nn::fused
