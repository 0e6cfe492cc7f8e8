// Sleeping on a word of shared memory: the kernel's futex, for words that several processes map.
//
//   while (word.load() == seen) futex_wait(word, seen, Millis(50));
#pragma once

#include <atomic>
#include <cstdint>

#include "trireme/core/clock.h"

namespace trireme::comm::shm {

/// Sleeps while the word holds `seen`, at most `limit`. May return early for no reason: look again.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, Millis limit);
/// Wakes all threads that sleep on the word.
void futex_wake_all(const std::atomic<uint32_t>& word);
/// Tells the processor that this is a spin loop.
void relax();

}  // namespace trireme::comm::shm
