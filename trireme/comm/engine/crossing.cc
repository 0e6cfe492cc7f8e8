#include "trireme/comm/engine/crossing.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "trireme/comm/engine/shm/half.h"

namespace trireme::comm {
namespace {

template <typename T>
T load(const std::byte* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return value;
}

template <typename T>
void store(T value, std::byte* to, size_t i) {
  std::memcpy(to + i * sizeof value, &value, sizeof value);
}

float widen_one(DType dtype, uint16_t bits) {
  return dtype == DType::f16 ? shm::widen_f16(bits) : shm::widen_bf16(bits);
}

uint16_t narrow_one(DType dtype, float value) {
  return dtype == DType::f16 ? shm::narrow_f16(value) : shm::narrow_bf16(value);
}

}  // namespace

void widen(DType dtype, const std::byte* from, size_t elements, float* to) {
  for (size_t i = 0; i < elements; ++i) to[i] = widen_one(dtype, load<uint16_t>(from, i));
}

void narrow(DType dtype, const float* from, size_t elements, std::byte* to) {
  for (size_t i = 0; i < elements; ++i) store(narrow_one(dtype, from[i]), to, i);
}

void divide(std::byte* data, size_t elements, DType dtype, float divisor) {
  switch (dtype) {
    case DType::f32:
      for (size_t i = 0; i < elements; ++i) store(load<float>(data, i) / divisor, data, i);
      return;
    case DType::f64:
      for (size_t i = 0; i < elements; ++i) store(load<double>(data, i) / static_cast<double>(divisor), data, i);
      return;
    case DType::f16:
    case DType::bf16:
      for (size_t i = 0; i < elements; ++i)
        store(narrow_one(dtype, widen_one(dtype, load<uint16_t>(data, i)) / divisor), data, i);
      return;
    default:
      throw std::logic_error("only floating types are divided");
  }
}

Crossing::Crossing(const Topology& topology, int host, DType dtype, ReduceOp op)
    : stored_(dtype),
      ranks_(static_cast<float>(topology.ranks())),
      host_ranks_(static_cast<float>(topology.members(host).size())),
      divides_(op == ReduceOp::avg && size_of(dtype) > 2),
      weighted_(op == ReduceOp::avg && size_of(dtype) == 2 && !topology.even()),
      inner_op_(divides_ ? ReduceOp::sum : op) {}

std::byte* Crossing::begin(std::byte* data, size_t elements) {
  if (!weighted_) return data;
  floats_.resize(elements);
  widen(stored_, data, elements, floats_.data());
  for (float& value : floats_) value *= host_ranks_;
  return reinterpret_cast<std::byte*>(floats_.data());
}

void Crossing::end(const std::byte* result, std::byte* data, size_t elements) const {
  if (weighted_) {
    for (size_t i = 0; i < elements; ++i) store(narrow_one(stored_, load<float>(result, i) / ranks_), data, i);
    return;
  }
  if (elements != 0 && result != data) std::memcpy(data, result, elements * size_of(stored_));
  if (divides_) divide(data, elements, stored_, ranks_);
}

}  // namespace trireme::comm
