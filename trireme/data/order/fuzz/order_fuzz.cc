// libFuzzer target for what comes from outside: an IDX file that is accepted has as many elements as its header says,
// a sampler state that is accepted is written as it was read, and an image list that is accepted has paths and labels.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/order_fuzz -max_total_time=30 trireme/data/order/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/data/order/idx.h"
#include "trireme/data/order/image_list.h"
#include "trireme/data/order/sampler_state.h"

namespace {

void fuzz_idx(const std::string& bytes) {
  const trireme::data::IdxArray array = trireme::data::parse_idx(bytes, "fuzz");
  size_t elements = 1;
  for (const int64_t size : array.shape) elements *= static_cast<size_t>(size);
  if (elements != array.elements().size()) std::abort();
}

void fuzz_state(const std::string& bytes) {
  const auto state = trireme::data::parse_sampler_state(bytes);
  if (trireme::data::parse_sampler_state(to_text(state)) != state) std::abort();
}

void fuzz_image_list(const std::string& bytes) {
  const trireme::UniqueFd file = trireme::make_memory_file("fuzz", bytes);
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const bool relabel = bytes.size() % 2 == 0;
  const auto list = trireme::data::read_image_list(path, {.labels_required = false, .relabel = relabel});
  for (int64_t i = 0; i < list.size(); ++i)
    if (list.path(i).empty() || list.label(i) < -1 || list.label(i) >= list.class_num()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const auto target : {fuzz_idx, fuzz_state, fuzz_image_list}) {
    try {
      target(bytes);
    } catch (const trireme::UsageError&) {
    }
  }
  return 0;
}
