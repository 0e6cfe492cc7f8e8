// Every operation of an engine against a plain reference. One rank's part; every rank of the group calls it with the
// same step. Included by tests only.
//
//   for (const Step& step : random_steps(1000, engine.me().size)) Player(engine, step).play();
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "trireme/comm/engine/engine.h"
#include "trireme/comm/engine/shm/test_ranks.h"

namespace trireme::comm::testing {

using shm::testing::Bytes;
using shm::testing::random_values;
using shm::testing::reference;

enum class Kind {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  ring,
};
inline constexpr int kKinds = 10;

struct Step {
  Kind kind;
  DType dtype;
  ReduceOp op;
  int root;
  size_t elements;
  uint64_t seed;
};

/// The same on every rank for the same arguments. `longest` is for one rank's part.
inline std::vector<Step> random_steps(size_t count, int ranks, size_t longest = 700, uint32_t seed = 20240607) {
  std::mt19937 random(seed);
  std::vector<Step> steps;
  while (steps.size() < count) {
    Step step{static_cast<Kind>(random() % kKinds),
              kDTypes[random() % 10],
              kReduceOps[random() % 5],
              static_cast<int>(random() % static_cast<unsigned>(ranks)),
              random() % 4 == 0 ? random() % (longest + 1) : random() % 20,
              steps.size()};
    if (step.op == ReduceOp::avg && !is_floating(step.dtype)) step.op = ReduceOp::sum;
    steps.push_back(step);
  }
  return steps;
}

/// Every kind of operation with every type and operation it knows.
inline std::vector<Step> all_steps(int ranks, size_t elements) {
  std::vector<Step> steps;
  for (int kind = 0; kind < kKinds; ++kind)
    for (const DType dtype : kDTypes)
      for (const ReduceOp op : kReduceOps) {
        const bool reduces = kind == 0 || kind == 1 || kind == static_cast<int>(Kind::reduce_scatter);
        if (op == ReduceOp::avg && !is_floating(dtype)) continue;
        if (!reduces && op != ReduceOp::sum) continue;
        const int root = static_cast<int>(steps.size()) % ranks;
        steps.push_back({static_cast<Kind>(kind), dtype, op, root, elements, steps.size()});
      }
  return steps;
}

inline double value_at(DType dtype, const Bytes& bytes, size_t i) {
  const auto get = [&](auto value) {
    std::memcpy(&value, &bytes[i * sizeof value], sizeof value);
    return value;
  };
  if (dtype == DType::f32) return get(float{});
  if (dtype == DType::f64) return get(double{});
  return dtype == DType::f16 ? shm::widen_f16(get(uint16_t{})) : shm::widen_bf16(get(uint16_t{}));
}

/// Sums and products of floating types may be joined in any order; test values stay below 16 in magnitude, so that a
/// rounding is worth at most 16 units. Everything else must be the same bits.
inline void expect_near(DType dtype, ReduceOp op, const Bytes& got, const Bytes& wanted, const std::string& what) {
  const bool exact = !is_floating(dtype) || op == ReduceOp::min || op == ReduceOp::max;
  if (exact || got == wanted) {
    EXPECT_EQ(got, wanted) << what;
    return;
  }
  const int digits = dtype == DType::f32 ? 24 : dtype == DType::f64 ? 53 : dtype == DType::f16 ? 11 : 8;
  const double tolerance = 64 * std::ldexp(1.0, -digits);
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size() / size_of(dtype); ++i)
    ASSERT_NEAR(value_at(dtype, got, i), value_at(dtype, wanted, i), tolerance) << what << ", element " << i;
}

class Player {
 public:
  Player(Engine& engine, const Step& step)
      : engine_(engine), step_(step), ranks_(static_cast<size_t>(engine.me().size)) {}

  void play() {
    switch (step_.kind) {
      case Kind::all_reduce:
        return all_reduce();
      case Kind::reduce:
        return reduce();
      case Kind::broadcast:
        return broadcast();
      case Kind::all_gather:
        return all_gather();
      case Kind::gather:
        return gather();
      case Kind::scatter:
        return scatter();
      case Kind::reduce_scatter:
        return reduce_scatter();
      case Kind::all_to_all:
        return all_to_all();
      case Kind::barrier:
        return engine_.barrier();
      case Kind::ring:
        return ring();
    }
  }

 private:
  size_t rank() const { return static_cast<size_t>(engine_.me().rank); }
  bool is_root() const { return engine_.me().rank == step_.root; }
  size_t width() const { return size_of(step_.dtype); }
  std::string what() const {
    return fmt::format("step {}: kind {}, {}, {}, {} elements, root {}, rank {} of {}", step_.seed,
                       static_cast<int>(step_.kind), to_string(step_.dtype), to_string(step_.op), step_.elements,
                       step_.root, rank(), ranks_);
  }
  Bytes values(size_t of, size_t elements) const { return random_values(step_.dtype, elements, step_.seed * 64 + of); }
  Bytes joined(size_t elements) const {
    std::vector<Bytes> inputs;
    for (size_t k = 0; k < ranks_; ++k) inputs.push_back(values(k, elements));
    return reference(step_.dtype, step_.op, inputs);
  }
  /// Uneven, with empty parts among them.
  std::vector<size_t> counts(size_t salt = 0) const {
    std::vector<size_t> sizes;
    for (size_t k = 0; k < ranks_; ++k)
      sizes.push_back(step_.seed % 3 == 0 ? step_.elements : step_.elements * ((k + salt + step_.seed) % 3) / 2);
    return sizes;
  }
  Bytes cut(const Bytes& all, const std::vector<size_t>& sizes, size_t part) const {
    size_t begin = 0;
    for (size_t k = 0; k < part; ++k) begin += sizes[k] * width();
    const auto at = [&](size_t offset) { return all.begin() + static_cast<ptrdiff_t>(offset); };
    return {at(begin), at(begin + sizes[part] * width())};
  }
  static size_t sum(const std::vector<size_t>& sizes) {
    size_t result = 0;
    for (const size_t size : sizes) result += size;
    return result;
  }

  void all_reduce() {
    Bytes data = values(rank(), step_.elements);
    engine_.all_reduce(data.data(), step_.elements, step_.dtype, step_.op);
    expect_near(step_.dtype, step_.op, data, joined(step_.elements), what());
    expect_same_bits(data);
  }
  void expect_same_bits(const Bytes& data) {
    const std::vector<size_t> sizes(ranks_, data.size());
    Bytes all(data.size() * ranks_);
    engine_.all_gather(data.data(), sizes, DType::u8, all.data());
    for (size_t k = 0; k < ranks_; ++k)
      EXPECT_TRUE(std::equal(data.begin(), data.end(), all.begin() + static_cast<ptrdiff_t>(k * data.size())))
          << what() << " differs from " << k;
  }
  void reduce() {
    const Bytes before = values(rank(), step_.elements);
    Bytes data = before;
    engine_.reduce(data.data(), step_.elements, step_.dtype, step_.op, step_.root);
    if (is_root())
      expect_near(step_.dtype, step_.op, data, joined(step_.elements), what());
    else
      EXPECT_EQ(data, before) << what() << ": only the root's data changes";
  }
  void broadcast() {
    Bytes data = values(rank(), step_.elements);
    engine_.broadcast(data.data(), step_.elements, step_.dtype, step_.root);
    EXPECT_EQ(data, values(static_cast<size_t>(step_.root), step_.elements)) << what();
  }
  Bytes gathered(const std::vector<size_t>& sizes) const {
    Bytes all;
    for (size_t k = 0; k < ranks_; ++k) {
      const Bytes theirs = values(k, sizes[k]);
      all.insert(all.end(), theirs.begin(), theirs.end());
    }
    return all;
  }
  void all_gather() {
    const auto sizes = counts();
    const Bytes mine = values(rank(), sizes[rank()]);
    Bytes output(sum(sizes) * width());
    engine_.all_gather(mine.data(), sizes, step_.dtype, output.data());
    EXPECT_EQ(output, gathered(sizes)) << what();
    size_t place = 0;
    for (size_t k = 0; k < rank(); ++k) place += sizes[k] * width();
    Bytes in_place(output.size());
    std::copy(mine.begin(), mine.end(), in_place.begin() + static_cast<ptrdiff_t>(place));
    engine_.all_gather(in_place.data() + place, sizes, step_.dtype, in_place.data());
    EXPECT_EQ(in_place, output) << what() << ", in place";
  }
  void gather() {
    const auto sizes = counts();
    const Bytes mine = values(rank(), sizes[rank()]);
    Bytes output(is_root() ? sum(sizes) * width() : 0);
    engine_.gather(mine.data(), sizes, step_.dtype, is_root() ? output.data() : nullptr, step_.root);
    EXPECT_EQ(output, is_root() ? gathered(sizes) : Bytes()) << what();
  }
  void scatter() {
    const auto sizes = counts();
    const Bytes all = values(static_cast<size_t>(step_.root), sum(sizes));
    Bytes output(sizes[rank()] * width());
    engine_.scatter(is_root() ? all.data() : nullptr, sizes, step_.dtype, output.data(), step_.root);
    EXPECT_EQ(output, cut(all, sizes, rank())) << what();
  }
  void reduce_scatter() {
    const auto sizes = counts();
    const Bytes input = values(rank(), sum(sizes));
    Bytes output(sizes[rank()] * width());
    engine_.reduce_scatter(input.data(), sizes, step_.dtype, step_.op, output.data());
    expect_near(step_.dtype, step_.op, output, cut(joined(sum(sizes)), sizes, rank()), what());
    EXPECT_EQ(input, values(rank(), sum(sizes))) << what() << ": the input stays";
  }
  void all_to_all() {
    const auto sent = counts(rank());
    const Bytes input = values(rank(), sum(sent));
    std::vector<size_t> received;
    Bytes wanted;
    for (size_t k = 0; k < ranks_; ++k) {
      const auto theirs = counts(k);
      received.push_back(theirs[rank()]);
      const Bytes part = cut(values(k, sum(theirs)), theirs, rank());
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    Bytes output(wanted.size());
    engine_.all_to_all(input.data(), sent, step_.dtype, output.data(), received);
    EXPECT_EQ(output, wanted) << what();
  }
  // Around once: everyone but rank 0 receives before it sends. Then in the other direction, two messages at a time.
  void ring() {
    if (ranks_ == 1) return;
    pass(static_cast<int>((rank() + 1) % ranks_), static_cast<int>((rank() + ranks_ - 1) % ranks_), 1);
    pass(static_cast<int>((rank() + ranks_ - 1) % ranks_), static_cast<int>((rank() + 1) % ranks_), 2);
  }
  void pass(int to, int from, int messages) {
    const Bytes mine = values(rank(), step_.elements);
    const auto send = [&] {
      for (int i = 0; i < messages; ++i) engine_.send(mine.data(), step_.elements, step_.dtype, to);
    };
    if (rank() == 0) send();
    for (int i = 0; i < messages; ++i) {
      Bytes data(mine.size());
      engine_.recv(data.data(), step_.elements, step_.dtype, from);
      EXPECT_EQ(data, values(static_cast<size_t>(from), step_.elements)) << what() << " from " << from;
    }
    if (rank() != 0) send();
  }

  Engine& engine_;
  const Step& step_;
  const size_t ranks_;
};

}  // namespace trireme::comm::testing
