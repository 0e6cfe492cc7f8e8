// libFuzzer target for files that say which pictures there are: an IDX file that is accepted has as many elements as
// its header says, and an image list that is accepted has paths and labels.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/list_fuzz -max_total_time=30 trireme/data/image/fuzz/lists
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/data/image/idx.h"
#include "trireme/data/image/image_list.h"

namespace {

void fuzz_idx(const std::string& bytes) {
  const trireme::data::IdxArray array = trireme::data::parse_idx(bytes, "fuzz");
  size_t elements = 1;
  for (const int64_t size : array.shape) elements *= static_cast<size_t>(size);
  if (elements != array.elements().size()) std::abort();
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
  for (const auto target : {fuzz_idx, fuzz_image_list}) {
    try {
      target(bytes);
    } catch (const trireme::UsageError&) {
    }
  }
  return 0;
}
