// libFuzzer target for files that come from elsewhere: the header of a safetensors file and the manifest of a
// checkpoint. Any bytes are read or refused by a UsageError; a header that is read describes each byte of the data
// once, and a manifest that is read is written as a text that reads the same.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/format_fuzz -max_total_time=30 trireme/io/format/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trireme/core/crc32c.h"
#include "trireme/core/error.h"
#include "trireme/io/format/manifest.h"
#include "trireme/io/format/safetensors_format.h"

namespace {

using namespace trireme;

void require(bool holds) {
  if (!holds) std::abort();
}

/// No byte twice, none left out, and as many as the shape says.
void fuzz_safetensors(std::string_view bytes) {
  const io::SafetensorsHeader header = io::parse_safetensors_header(bytes, bytes.size(), "fuzz");
  uint64_t described = 0;
  for (const io::TensorInfo& tensor : header.tensors) {
    uint64_t needed = io::element_bytes(tensor.dtype);
    for (const int64_t size : tensor.shape) needed *= static_cast<uint64_t>(size);
    require(needed == tensor.end - tensor.begin);
    described += needed;
  }
  require(header.data_start + described == bytes.size());
}

void fuzz_manifest(std::string_view bytes) {
  const io::Manifest manifest = io::parse_manifest(bytes, "fuzz");
  require(io::parse_manifest(io::to_json(manifest), "written") == manifest);
}

/// The same with a correct checksum, which random bytes would never have.
void fuzz_manifest_content(std::string_view content) {
  fuzz_manifest(R"({"format":1,"crc32c":")" + fmt::format("{:08x}", crc32c(content)) + R"(","content":)" +
                std::string(content) + "}");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto target : {fuzz_safetensors, fuzz_manifest, fuzz_manifest_content}) {
    try {
      target(bytes);
    } catch (const UsageError&) {
    }
  }
  return 0;
}
