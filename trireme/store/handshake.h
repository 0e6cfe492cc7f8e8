// How both sides prove to know the job's token without sending it.
//
// The server sends a fresh nonce, the client answers with its own nonce, its name and a proof over all three, the
// server closes with its proof. The two proofs differ in their label, so neither side can be made to compute the
// other's; both nonces are in each, so an old recording proves nothing.
#pragma once

#include <string>

#include "trireme/core/token.h"

namespace trireme::store {

struct Greeting {
  std::string server_nonce;
  std::string client_nonce;
  std::string name;
};

std::string client_proof(const Token& token, const Greeting& greeting);
std::string server_proof(const Token& token, const Greeting& greeting);

}  // namespace trireme::store
