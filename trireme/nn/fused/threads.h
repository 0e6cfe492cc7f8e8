// Work shared out over libtorch's own threads.
//
//   on_threads(16, [&](int64_t share) { … });
//
// at::parallel_for() is a template that runs on one thread unless the code that calls it is compiled with OpenMP, by a
// compiler whose OpenMP library is the one that libtorch uses. This runs on libtorch's threads whoever compiles it.
#pragma once

#include <cstdint>
#include <functional>

namespace trireme::nn::fused {

/// f(0) to f(count - 1), each once, in any order. On at::get_num_threads() threads; inside of such a loop, on this one
/// alone. The first exception is thrown again when all have ended.
void on_threads(int64_t count, const std::function<void(int64_t)>& f);

}  // namespace trireme::nn::fused
