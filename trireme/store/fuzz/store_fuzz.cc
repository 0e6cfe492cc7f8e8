// libFuzzer target for the store's wire format: whatever is decoded must encode to the same bytes.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/store_fuzz -max_total_time=30 trireme/store/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trireme/core/base64.h"
#include "trireme/store/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  namespace wire = store::wire;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const wire::Decoded decoded = wire::decode(bytes, wire::kMaxPayload);
  if (decoded.status == wire::Status::complete && wire::encode(decoded.message) != bytes.substr(0, decoded.size))
    std::abort();
  if (const auto text = base64_decode(bytes); text.ok() && base64_decode(base64_encode(text.bytes)).bytes != text.bytes)
    std::abort();
  return 0;
}
