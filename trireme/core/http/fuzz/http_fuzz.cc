// libFuzzer target for what clients send: any bytes are a request or are refused, in the same way however they are cut.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/http_fuzz -max_total_time=30 trireme/core/http/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trireme/core/http/parser.h"

namespace {

using namespace trireme::http;

constexpr Limits kLimits{.header_bytes = 1000, .headers = 10, .body_bytes = 1000};

Parser parsed(std::string_view bytes, size_t piece) {
  Parser parser(kLimits);
  for (size_t at = 0; at < bytes.size() && parser.state() == Parser::State::reading; at += piece)
    parser.take(bytes.substr(at, piece));
  if (parser.request().body.size() > kLimits.body_bytes) std::abort();
  return parser;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Parser whole = parsed(bytes, bytes.size() + 1);
  Parser pieces = parsed(bytes, 7);
  if (whole.state() != pieces.state()) std::abort();
  if (whole.request().body != pieces.request().body || whole.request().path != pieces.request().path) std::abort();
  if (whole.state() == Parser::State::refused && whole.refusal().status < 400) std::abort();
  return 0;
}
