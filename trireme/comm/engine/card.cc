#include "trireme/comm/engine/card.h"

#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"

namespace trireme::comm {
namespace {

constexpr char kSeparator = '\n';

}  // namespace

std::string encode(const Card& card) {
  return fmt::format("{1}{0}{2}{0}{3}{0}{4}{0}{5}", kSeparator, shm::encode(card.process), card.host, card.address,
                     to_string(card.beacon), card.gpu);
}

Card decode_card(const std::string& text) {
  const std::vector<std::string> fields = split(text, kSeparator);
  if (fields.size() != 5) throw PeerError("a rank's card has {} fields where 5 are expected", fields.size());
  return {shm::decode_identity(fields[0]), fields[1], fields[2], parse_endpoint(fields[3], "a rank's beacon"),
          fields[4]};
}

}  // namespace trireme::comm
