// What a rank tells the others about itself when they meet, in a form that travels between them.
//
//   store.set("card/2", encode(Card{.process = shm::this_process(), .host = host_name(), …}));
//   const Card card = decode_card(store.get("card/2", deadline));
#pragma once

#include <string>

#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/endpoint.h"

namespace trireme::comm {

struct Card {
  shm::ProcessIdentity process;
  std::string host;     ///< its name, for messages
  std::string address;  ///< for connections
  Endpoint beacon;      ///< refuses connections when the rank is dead (engine/liveness.h)
  std::string gpu = {};
};

std::string encode(const Card& card);
/// PeerError when the text is not from encode().
Card decode_card(const std::string& text);

}  // namespace trireme::comm
