#include "trireme/store/handshake.h"

namespace trireme::store {
namespace {

// The nonces have a fixed length and the name comes last: no two greetings give the same text.
std::string proof(const Token& token, const std::string& label, const Greeting& greeting) {
  return hmac_sha256(token.bytes(), label + greeting.server_nonce + greeting.client_nonce + greeting.name);
}

}  // namespace

std::string client_proof(const Token& token, const Greeting& greeting) {
  return proof(token, "trireme store 2 client:", greeting);
}

std::string server_proof(const Token& token, const Greeting& greeting) {
  return proof(token, "trireme store 2 server:", greeting);
}

}  // namespace trireme::store
