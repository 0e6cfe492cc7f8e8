// An exchange of messages between each two ranks of a group, for what MPI's own collectives cannot count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "trireme/comm/engine/engine.h"
#include "trireme/comm/engine/mpi/communicator_impl.h"
#include "trireme/core/deadline.h"

namespace trireme::comm::mpi {

inline const std::byte* bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}
inline std::byte* bytes(void* data) {
  return static_cast<std::byte*>(data);
}
/// A null pointer stays one at element 0.
inline const std::byte* at(const void* data, size_t element, DType dtype) {
  return element == 0 ? bytes(data) : bytes(data) + element * size_of(dtype);
}
inline std::byte* at(void* data, size_t element, DType dtype) {
  return element == 0 ? bytes(data) : bytes(data) + element * size_of(dtype);
}

/// Cuts what is too long for one message. There is at least one message, if empty: the receiver waits for it.
template <typename Visit>
void for_messages(size_t elements, size_t width, size_t limit, Visit visit) {
  constexpr size_t kMaxMessage = size_t{1} << 30;  // bytes
  const size_t most = std::min(limit, kMaxMessage / width);
  size_t begin = 0;
  do {
    const size_t count = std::min(most, elements - begin);
    visit(begin, count);
    begin += count;
  } while (begin < elements);
}

/// A stretch of memory that goes to a rank or comes from one.
struct Stretch {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t size = 0;  // in bytes
};
using Stretches = std::vector<Stretch>;  // one for each rank

inline Stretch stretch(const void* data, size_t element, size_t count, DType dtype) {
  return {at(data, element, dtype), nullptr, count * size_of(dtype)};
}
inline Stretch stretch(void* data, size_t element, size_t count, DType dtype) {
  return {nullptr, at(data, element, dtype), count * size_of(dtype)};
}
inline Stretches nothing(int ranks) {
  return Stretches(static_cast<size_t>(ranks));
}
template <typename Data>
Stretches parts(Data* data, Engine::Counts counts, DType dtype) {
  Stretches result;
  size_t begin = 0;
  for (const size_t count : counts) result.push_back(stretch(data, std::exchange(begin, begin + count), count, dtype));
  return result;
}
template <typename Data>
Stretches same_for_all(Data* data, size_t count, DType dtype, int ranks) {
  return Stretches(static_cast<size_t>(ranks), stretch(data, 0, count, dtype));
}
inline Stretches only_for(int peer, const Stretches& all) {
  Stretches result(all.size());
  result[static_cast<size_t>(peer)] = all[static_cast<size_t>(peer)];
  return result;
}

class Exchange {
 public:
  /// `limit`: the most bytes of one message.
  Exchange(Communicator& group, size_t limit) : group_(group), me_(group.me()), limit_(limit) {}

  /// Stretch k of `sent` goes to rank k, stretch k of `received` comes from there. Both sides send even empty ones.
  /// Disagreement when a size is not what the receiver expects.
  void run(const Stretches& sent, const Stretches& received, Deadline deadline);

 private:
  template <typename Visit>
  void for_peers(Visit visit) const;
  void copy_own(const Stretch& from, const Stretch& to) const;
  void check_received(const std::vector<MPI_Status>& statuses, const std::vector<size_t>& expected,
                      const std::vector<int>& peers) const;

  Communicator& group_;
  const RankInfo me_;
  const size_t limit_;
};

}  // namespace trireme::comm::mpi
