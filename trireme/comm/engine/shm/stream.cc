#include "trireme/comm/engine/shm/stream.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace trireme::comm::shm {

#if defined(__SSE2__)
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kWorthIt = 4096;  // below, the way through memory costs more than it saves

void stream_line(std::byte* to, const std::byte* from) {
  for (size_t i = 0; i < kLineBytes; i += sizeof(__m128i))
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (bytes < kWorthIt) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
  const size_t end = head + (bytes - head) / kLineBytes * kLineBytes;
  std::memcpy(to, from, head);
  for (size_t at = head; at < end; at += kLineBytes) stream_line(to + at, from + at);
  std::memcpy(to + end, from + end, bytes - end);
  _mm_sfence();  // such stores are outside the order that an atomic store keeps
}
#else
void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}
#endif

}  // namespace trireme::comm::shm
