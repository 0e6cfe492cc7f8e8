// The two shuffles that training code knows, number for number. Both draw from MT19937 seeded by one 32-bit number.
//
//   std::vector<uint32_t> order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
//   numpy_shuffle(order, 0);                    // 2 8 4 9 1 6 7 3 0 5, as numpy.random.RandomState(0).shuffle
//   order = torch_randperm(10, 0);              // 4 1 7 5 3 …, as torch.randperm on a CPU generator with seed 0
//
// They are spelled out here because std::shuffle may differ from one standard library to the next.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::data {

/// numpy.random.RandomState(seed).shuffle(values), in place. Paddle's samplers shuffle so.
void numpy_shuffle(std::vector<uint32_t>& values, uint32_t seed);

/// torch.randperm(count) with a CPU generator of manual_seed(seed). torch seeds it with the low 32 bits, and so do we.
std::vector<uint32_t> torch_randperm(uint32_t count, uint64_t seed);

}  // namespace trireme::data
