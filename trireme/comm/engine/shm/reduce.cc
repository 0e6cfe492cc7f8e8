// One loop body, compiled for each instruction set and chosen once at run time by asking the processor. The body is
// forced inline into a function that carries the target attribute; target_clones would do the same by ifunc resolvers,
// which run before a sanitizer is ready.
#include "trireme/comm/engine/shm/reduce.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "trireme/comm/engine/shm/half.h"

#define TRIREME_SHM_INLINE [[gnu::always_inline]] inline

namespace trireme::comm::shm {
namespace {

struct Job {
  std::span<const std::byte* const> sources;
  size_t elements;
  std::byte* out;
  bool average;
};

constexpr size_t kBlock = 1024;  // accumulators kept in the first-level cache

// How an element is stored and in which type it is joined.
template <typename T>
struct Plain {
  using Stored = T;
  using Joined = T;
  TRIREME_SHM_INLINE static Joined widen(Stored value) { return value; }
  TRIREME_SHM_INLINE static Stored narrow(Joined value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  using Joined = float;
  TRIREME_SHM_INLINE static Joined widen(Stored value) { return widen_f16(value); }
  TRIREME_SHM_INLINE static Stored narrow(Joined value) { return narrow_f16(value); }
};
struct BFloat {
  using Stored = uint16_t;
  using Joined = float;
  TRIREME_SHM_INLINE static Joined widen(Stored value) { return widen_bf16(value); }
  TRIREME_SHM_INLINE static Stored narrow(Joined value) { return narrow_bf16(value); }
};
struct Bool {
  using Stored = uint8_t;
  using Joined = uint8_t;
  TRIREME_SHM_INLINE static Joined widen(Stored value) { return value != 0; }
  TRIREME_SHM_INLINE static Stored narrow(Joined value) { return value != 0; }
};

// Integers wrap around: computed without a sign, and wide enough not to be promoted to int.
template <typename T>
using Wrapping =
    std::conditional_t<std::is_floating_point_v<T>, T, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

struct Sum {
  template <typename T>
  TRIREME_SHM_INLINE static T join(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Prod {
  template <typename T>
  TRIREME_SHM_INLINE static T join(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
template <typename T>
TRIREME_SHM_INLINE bool is_nan(T value) {
  return value != value;
}
// `|` and not `||`: no branch, so the loop vectorises.
struct Min {
  template <typename T>
  TRIREME_SHM_INLINE static T join(T a, T b) {
    return ((a < b) | is_nan(a)) ? a : b;
  }
};
struct Max {
  template <typename T>
  TRIREME_SHM_INLINE static T join(T a, T b) {
    return ((a > b) | is_nan(a)) ? a : b;
  }
};

template <typename Element>
TRIREME_SHM_INLINE typename Element::Joined load(const std::byte* from, size_t i) {
  typename Element::Stored value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return Element::widen(value);
}

template <typename Element>
TRIREME_SHM_INLINE void store(typename Element::Joined value, std::byte* to, size_t i) {
  const typename Element::Stored stored = Element::narrow(value);
  std::memcpy(to + i * sizeof stored, &stored, sizeof stored);
}

template <typename Element, typename Op>
TRIREME_SHM_INLINE void reduce_block(const Job& job, size_t begin, size_t count) {
  using Joined = typename Element::Joined;
  const size_t offset = begin * sizeof(typename Element::Stored);
  Joined block[kBlock];
  const std::byte* first = job.sources[0] + offset;
  if (job.sources.size() == 1)
    for (size_t i = 0; i < count; ++i) block[i] = load<Element>(first, i);
  else  // in one pass: two ranks are the most frequent case
    for (size_t i = 0; i < count; ++i)
      block[i] = Op::join(load<Element>(first, i), load<Element>(job.sources[1] + offset, i));
  for (size_t k = 2; k < job.sources.size(); ++k) {
    const std::byte* source = job.sources[k] + offset;
    for (size_t i = 0; i < count; ++i) block[i] = Op::join(block[i], load<Element>(source, i));
  }
  if constexpr (std::is_floating_point_v<Joined>) {
    const auto divisor = static_cast<Joined>(job.sources.size());
    if (job.average)
      for (size_t i = 0; i < count; ++i) block[i] /= divisor;
  }
  std::byte* out = job.out + offset;
  for (size_t i = 0; i < count; ++i) store<Element>(block[i], out, i);
}

template <typename Element, typename Op>
TRIREME_SHM_INLINE void reduce_all(const Job& job) {
  for (size_t begin = 0; begin < job.elements; begin += kBlock)
    reduce_block<Element, Op>(job, begin, std::min(kBlock, job.elements - begin));
}

using Kernel = void (*)(const Job&);

struct Baseline {
  template <typename Element, typename Op>
  static void run(const Job& job) {
    reduce_all<Element, Op>(job);
  }
};

#if defined(__x86_64__)
struct Avx2 {
  template <typename Element, typename Op>
  [[gnu::target("avx2")]] static void run(const Job& job) {
    reduce_all<Element, Op>(job);
  }
};
struct Avx512 {
  template <typename Element, typename Op>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void run(const Job& job) {
    reduce_all<Element, Op>(job);
  }
};
bool has_avx2() {
  return __builtin_cpu_supports("avx2");
}
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else  // the baseline of other processors (Arm's NEON) already has vectors
using Avx2 = Baseline;
using Avx512 = Baseline;
bool has_avx2() {
  return false;
}
bool has_avx512() {
  return false;
}
#endif

template <typename Isa, typename Element>
Kernel kernel_for(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return Isa::template run<Element, Sum>;
    case ReduceOp::prod:
      return Isa::template run<Element, Prod>;
    case ReduceOp::min:
      return Isa::template run<Element, Min>;
    case ReduceOp::max:
      return Isa::template run<Element, Max>;
  }
  throw std::logic_error("no such ReduceOp");
}

template <typename Isa>
Kernel kernel_of(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::f32:
      return kernel_for<Isa, Plain<float>>(op);
    case DType::f64:
      return kernel_for<Isa, Plain<double>>(op);
    case DType::f16:
      return kernel_for<Isa, Half>(op);
    case DType::bf16:
      return kernel_for<Isa, BFloat>(op);
    case DType::i8:
      return kernel_for<Isa, Plain<int8_t>>(op);
    case DType::u8:
      return kernel_for<Isa, Plain<uint8_t>>(op);
    case DType::i16:
      return kernel_for<Isa, Plain<int16_t>>(op);
    case DType::i32:
      return kernel_for<Isa, Plain<int32_t>>(op);
    case DType::i64:
      return kernel_for<Isa, Plain<int64_t>>(op);
    case DType::boolean:
      return kernel_for<Isa, Bool>(op);
  }
  throw std::logic_error("no such DType");
}

struct InstructionSet {
  const char* name;
  Kernel (*kernel)(DType, ReduceOp);
};

const InstructionSet& instruction_set() {
  static const InstructionSet found = has_avx512() ? InstructionSet{"avx512", kernel_of<Avx512>}
                                      : has_avx2() ? InstructionSet{"avx2", kernel_of<Avx2>}
                                                   : InstructionSet{"baseline", kernel_of<Baseline>};
  return found;
}

}  // namespace

void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> sources, size_t elements, std::byte* out) {
  instruction_set().kernel(dtype, op)({sources, elements, out, op == ReduceOp::avg});
}

const char* reduce_instruction_set() {
  return instruction_set().name;
}

}  // namespace trireme::comm::shm
