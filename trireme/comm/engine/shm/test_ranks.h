// Ranks as threads, inputs and a plain reference. Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "trireme/comm/engine/shm/group.h"
#include "trireme/comm/engine/shm/half.h"
#include "trireme/core/clock.h"
#include "trireme/core/test_support.h"

namespace trireme::comm::shm::testing {

using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

using trireme::eventually;
using trireme::message_of;

/// Whether /dev/shm holds nothing of ours. Other tests may be between making and removing a name, so it looks again.
inline bool nothing_left() {
  return eventually([] {
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().starts_with("trireme-")) return false;
    return true;
  });
}

/// One mapping for all ranks, so that the thread sanitizer sees who touches what.
inline std::shared_ptr<Segment> make_segment(int ranks, size_t piece_bytes) {
  const Shape shape = group_shape(ranks, piece_bytes);
  return Segment::format(SegmentFile::anonymous(shape.total_bytes()).fd(), shape);
}

/// Calls `body` once per rank, each in a thread; the first exception comes out.
inline void in_threads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

inline void with_group(int ranks, size_t piece_bytes, const std::function<void(Group&)>& body,
                       Clock::duration timeout = 60s, int spins = 0) {
  const auto segment = make_segment(ranks, piece_bytes);
  in_threads(ranks, [&](int rank) {
    Group group(segment, {.me = {rank, ranks}}, {.timeout = timeout, .spins = spins});
    body(group);
  });
}

using Bytes = std::vector<std::byte>;

/// Numbers of the type, the same for the same seed: small enough for products to stay finite.
inline Bytes random_values(DType dtype, size_t elements, uint64_t seed) {
  std::minstd_rand random(static_cast<uint32_t>(seed * 2654435761u + 1));
  Bytes bytes(elements * size_of(dtype));
  const auto put = [&](size_t i, auto value) { std::memcpy(&bytes[i * sizeof value], &value, sizeof value); };
  for (size_t i = 0; i < elements; ++i) {
    const float real = static_cast<float>(random() % 4001) / 1000.0f - 2.0f;
    if (dtype == DType::f32) put(i, real);
    if (dtype == DType::f64) put(i, static_cast<double>(real) / 3);
    if (dtype == DType::f16) put(i, narrow_f16(real));
    if (dtype == DType::bf16) put(i, narrow_bf16(real));
    if (dtype == DType::boolean) put(i, static_cast<uint8_t>(random() % 2));
    if (dtype == DType::i8 || dtype == DType::u8) put(i, static_cast<uint8_t>(random()));
    if (dtype == DType::i16) put(i, static_cast<uint16_t>(random()));
    if (dtype == DType::i32) put(i, static_cast<uint32_t>(random()) * 5);
    if (dtype == DType::i64) put(i, static_cast<uint64_t>(random()) * 0x123456789u);
  }
  return bytes;
}

// The reference: one element after the other, one type after the other, nothing clever.

template <typename T>
T plain_join(ReduceOp op, T a, T b) {
  if (op == ReduceOp::sum || op == ReduceOp::avg) return a + b;
  if (op == ReduceOp::prod) return a * b;
  return (op == ReduceOp::min) == (a < b) ? a : b;
}

template <typename Stored, typename Wide, typename Widen, typename Narrow>
Bytes plain_reduce(ReduceOp op, const std::vector<Bytes>& inputs, Widen widen, Narrow narrow) {
  Bytes result(inputs[0].size());
  for (size_t at = 0; at < result.size(); at += sizeof(Stored)) {
    const auto value = [&](const Bytes& input) {
      Stored stored;
      std::memcpy(&stored, &input[at], sizeof stored);
      return static_cast<Wide>(widen(stored));
    };
    Wide joined = value(inputs[0]);
    for (size_t rank = 1; rank < inputs.size(); ++rank) joined = plain_join<Wide>(op, joined, value(inputs[rank]));
    if (op == ReduceOp::avg) joined = joined / static_cast<Wide>(inputs.size());
    const Stored stored = static_cast<Stored>(narrow(joined));
    std::memcpy(&result[at], &stored, sizeof stored);
  }
  return result;
}

template <typename T, typename Wide>
Bytes plain_reduce(ReduceOp op, const std::vector<Bytes>& inputs) {
  const auto same = [](auto value) { return value; };
  return plain_reduce<T, Wide>(op, inputs, same, same);
}

/// Integers are computed modulo 2^64 and cut, which for sums and products equals computing them in their own width.
template <typename T>
Bytes plain_integers(ReduceOp op, const std::vector<Bytes>& inputs) {
  const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
  return ordered ? plain_reduce<T, int64_t>(op, inputs) : plain_reduce<T, uint64_t>(op, inputs);
}

inline Bytes reference(DType dtype, ReduceOp op, const std::vector<Bytes>& inputs) {
  switch (dtype) {
    case DType::f32:
      return plain_reduce<float, float>(op, inputs);
    case DType::f64:
      return plain_reduce<double, double>(op, inputs);
    case DType::f16:
      return plain_reduce<uint16_t, float>(op, inputs, widen_f16, narrow_f16);
    case DType::bf16:
      return plain_reduce<uint16_t, float>(op, inputs, widen_bf16, narrow_bf16);
    case DType::i8:
      return plain_integers<int8_t>(op, inputs);
    case DType::u8:
      return plain_integers<uint8_t>(op, inputs);
    case DType::i16:
      return plain_integers<int16_t>(op, inputs);
    case DType::i32:
      return plain_integers<int32_t>(op, inputs);
    case DType::i64:
      return plain_integers<int64_t>(op, inputs);
    case DType::boolean:
      return plain_reduce<uint8_t, int>(
          op, inputs, [](uint8_t value) { return value; }, [](int value) { return value != 0; });
  }
  return {};
}

}  // namespace trireme::comm::shm::testing
