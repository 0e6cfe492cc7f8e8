// Large CPU tensors where the other ranks of the host can read them in place (shm/arena.h).
//
//   share_large_tensors(2);                                  // init_parallel_env() does, on ranks that compute on a
//   CPU torch::Tensor gradients = torch::empty(6 << 20);         // all_reduce(gradients) copies it into no buffer
//
// A process that is alone on its host has such memory too, for itself: what a tensor leaves keeps its pages for the next
// one, and fetching pages takes a fifth of a training step otherwise.
//
// It replaces libtorch's allocator of CPU memory. What was allocated before stays where it is, and small tensors always
// come from malloc: both are reduced as well, through buffers.
#pragma once

#include <cstddef>

namespace trireme::comm {

/// From this size on a tensor is worth whole pages.
inline constexpr size_t kLargeTensor = size_t{128} << 10;

/// Once per process; further calls do nothing. `local_ranks` share the memory of this host; of one, nothing is shared.
/// Where shared memory cannot be had nothing changes, and the log says why.
void share_large_tensors(int local_ranks);

}  // namespace trireme::comm
