// libFuzzer target for what ranks tell each other through the store: the card of a rank, and who is to blame. Any text is
// read, or refused by an Error, and what is read is written as a text that reads the same.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/engine_fuzz -max_total_time=30 trireme/comm/engine/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trireme/comm/engine/blame.h"
#include "trireme/comm/engine/card.h"
#include "trireme/core/error.h"

namespace {

using namespace trireme;

void fuzz_card(const std::string& text) {
  const std::string written = comm::encode(comm::decode_card(text));
  if (comm::encode(comm::decode_card(written)) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const comm::Blame blame = comm::decode_blame(text);
  if (comm::decode_blame(comm::encode(blame)) != blame) std::abort();
  try {
    fuzz_card(text);
  } catch (const Error&) {
  }
  return 0;
}
