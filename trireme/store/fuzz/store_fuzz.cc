// libFuzzer target for the store's wire format: whatever is decoded must encode to the same bytes, and a reader of sealed
// records gives out what was sealed, unless a byte of it has changed.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/store_fuzz -max_total_time=30 trireme/store/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/core/base64.h"
#include "trireme/store/sealed.h"
#include "trireme/store/wire.h"

namespace {

using namespace trireme;
namespace wire = store::wire;

const std::string kKey(Cipher::kKeySize, 'k');

void require(bool holds) {
  if (!holds) std::abort();
}

// All messages at the beginning of what arrives in pieces of `step` bytes, encoded again, and how the reading ended.
std::pair<std::string, wire::Status> read_all(std::string_view sealed, size_t step) {
  store::MessageReader reader;
  reader.open_with(kKey);
  std::string messages;
  for (size_t begin = 0; begin < sealed.size(); begin += step) {
    reader.append(sealed.substr(begin, step));
    wire::Decoded next = reader.next(wire::kMaxPayload);
    for (; next.status == wire::Status::complete; next = reader.next(wire::kMaxPayload))
      messages += wire::encode(next.message);
    if (next.status == wire::Status::bad) return {messages, next.status};
  }
  return {messages, wire::Status::incomplete};
}

void check_sealed(std::string_view bytes) {
  read_all(bytes, 7);  // from a client without the key
  std::string sealed = store::Sealer(kKey).seal(bytes);
  const auto whole = read_all(sealed, sealed.size() + 1);
  require(read_all(sealed, 5) == whole);
  require(bytes.substr(0, whole.first.size()) == whole.first);
  const wire::Decoded first = wire::decode(bytes, wire::kMaxPayload);
  require((first.status == wire::Status::complete) == !whole.first.empty());
  if (bytes.empty() || bytes.size() > store::kMaxRecord) return;
  sealed[static_cast<unsigned char>(bytes.back()) % sealed.size()] ^= 1;
  require(read_all(sealed, 11).first.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const wire::Decoded decoded = wire::decode(bytes, wire::kMaxPayload);
  if (decoded.status == wire::Status::complete) require(wire::encode(decoded.message) == bytes.substr(0, decoded.size));
  check_sealed(bytes);
  if (const auto text = base64_decode(bytes); text.ok())
    require(base64_decode(base64_encode(text.bytes)).bytes == text.bytes);
  return 0;
}
