// Copies into shared memory that another processor reads next.
//
//   stream_copy(exchange.my_in(), tensor, bytes);
//   exchange.sync();
//
// An ordinary store to a line that another core has read must first take the line away from it. Between cores without
// a common cache that is most of the time of a collective; a store past the caches does not wait for it.
#pragma once

#include <cstddef>

namespace trireme::comm::shm {

/// As std::memcpy; `to` is in shared memory. What was written is visible to whoever sees a later atomic store of this
/// thread. `to == from` and 0 bytes do nothing.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace trireme::comm::shm
