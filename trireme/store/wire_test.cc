#include "trireme/store/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/core/token.h"
#include "trireme/store/handshake.h"
#include "trireme/store/store.h"

namespace trireme::store::wire {
namespace {

const std::string kDigest(32, 'd');

std::vector<Message> samples() {
  return {{.type = Type::challenge, .parts = {kDigest}},
          {.type = Type::hello, .parts = {kDigest, "rank 3", kDigest}},
          {.type = Type::welcome, .parts = {kDigest}},
          {.type = Type::refuse, .parts = {"no"}},
          {.type = Type::enrol, .parts = {kDigest}},
          {.type = Type::enrolled, .parts = {kDigest, std::string(60, 's')}},
          {.type = Type::set, .parts = {"key", "value"}},
          {.type = Type::get, .number = -1, .parts = {"key"}},
          {.type = Type::try_get, .parts = {"key"}},
          {.type = Type::add, .number = INT64_MIN, .parts = {"key"}},
          {.type = Type::compare_set, .parts = {"key", "", "new"}},
          {.type = Type::remove, .parts = {"key"}},
          {.type = Type::list, .parts = {""}},
          {.type = Type::ping, .parts = {""}},
          {.type = Type::time},
          {.type = Type::done},
          {.type = Type::value, .parts = {std::string("\0\xff", 2)}},
          {.type = Type::absent},
          {.type = Type::number, .number = INT64_MAX},
          {.type = Type::entries},
          {.type = Type::entries, .parts = {"a", "1", "b", ""}},
          {.type = Type::failed, .parts = {"why"}}};
}

std::string with_byte(std::string bytes, size_t at, char byte) {
  bytes[at] = byte;
  return bytes;
}

void expect_bad(const std::string& bytes, size_t max_payload = kMaxPayload) {
  const Decoded decoded = decode(bytes, max_payload);
  EXPECT_EQ(decoded.status, Status::bad);
  EXPECT_STRNE(decoded.error, "");
}

TEST(Wire, EveryTypeSurvivesTheTrip) {
  for (const Message& message : samples()) {
    const std::string bytes = encode(message);
    EXPECT_EQ(bytes.size(), encoded_size(message));
    const Decoded decoded = decode(bytes + "next", kMaxPayload);
    ASSERT_EQ(decoded.status, Status::complete) << static_cast<int>(message.type);
    EXPECT_EQ(decoded.message, message);
    EXPECT_EQ(decoded.size, bytes.size());
  }
}

TEST(Wire, EveryCutIsIncomplete) {
  for (const Message& message : samples()) {
    const std::string bytes = encode(message);
    for (size_t cut = 0; cut < bytes.size(); ++cut)
      EXPECT_EQ(decode(std::string_view(bytes).substr(0, cut), kMaxPayload).status, Status::incomplete);
  }
}

TEST(Wire, StrangersAreSeenAtTheirFirstByte) {
  expect_bad("G");
  expect_bad("TRX");
  expect_bad(with_byte(encode({.type = Type::done}), 3, kVersion - 1));
}

TEST(Wire, UnknownTypesAndReservedBytesAreBad) {
  const std::string bytes = encode({.type = Type::done});
  for (const int type : {0, 7, 15, 25, 31, 38, 39, 40, 255}) expect_bad(with_byte(bytes, 4, static_cast<char>(type)));
  for (const size_t at : {5, 6, 7}) expect_bad(with_byte(bytes, at, 1));
}

TEST(Wire, LengthsAreCheckedFromTheHeaderAlone) {
  const std::string header = encode({.type = Type::set, .parts = {"k", "v"}}).substr(0, kHeaderSize);
  expect_bad(with_byte(header, 11, '\xff'));
  expect_bad(with_byte(header, 11, '\x7f'));
  expect_bad(with_byte(header, 8, 7));  // below an empty message
  expect_bad(header, 16);               // above what this connection may send
  expect_bad(with_byte(encode({.type = Type::done}).substr(0, kHeaderSize), 8, 9));  // above what the type allows
}

TEST(Wire, PartsMustFitTheirType) {
  expect_bad(encode({.type = Type::set, .parts = {"key"}}));
  expect_bad(encode({.type = Type::set, .parts = {"key", "value", "more"}}));
  expect_bad(encode({.type = Type::set, .parts = {"", "value"}}));
  expect_bad(encode({.type = Type::get, .parts = {std::string(Store::kMaxKey + 1, 'k')}}));
  expect_bad(encode({.type = Type::challenge, .parts = {"short"}}));
  expect_bad(encode({.type = Type::entries, .parts = {"key without a value"}}));
  const std::string bytes = encode({.type = Type::set, .parts = {"key", "value"}});
  expect_bad(with_byte(bytes, kHeaderSize + 8, 100));  // the first part claims more than there is
}

TEST(Wire, RandomMutationsNeverBreakTheDecoder) {
  std::mt19937 random(7);  // fixed: a failure can be repeated
  const auto below = [&](size_t limit) { return random() % limit; };
  const std::vector<Message> messages = samples();
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = encode(messages[below(messages.size())]);
    for (size_t j = below(6); j > 0; --j) bytes[below(bytes.size())] = static_cast<char>(random());
    if (below(4) == 0) bytes.resize(below(bytes.size() + 1));
    if (below(4) == 0) bytes.append(below(40), static_cast<char>(random()));
    const Decoded decoded = decode(bytes, kMaxPayload);
    if (decoded.status != Status::complete) continue;
    ASSERT_LE(decoded.size, bytes.size());
    ASSERT_EQ(encode(decoded.message), bytes.substr(0, decoded.size));  // there is one encoding of each message
  }
}

TEST(Wire, RandomBytesBehindAGoodHeader) {
  std::mt19937 random(8);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = encode({.type = static_cast<Type>(random() % 40)}).substr(0, kHeaderSize);
    bytes[8] = static_cast<char>(random() % 64);
    while (bytes.size() < kHeaderSize + 64) bytes += static_cast<char>(random() % 4 ? 0 : random());
    const Decoded decoded = decode(bytes, kMaxPayload);
    ASSERT_NE(decoded.status, Status::incomplete);
  }
}

TEST(Handshake, ProofsDependOnEverything) {
  const Token token = Token::random();
  const Greeting greeting{std::string(32, 's'), std::string(32, 'c'), "rank 3"};
  const std::string proof = client_proof(token, greeting);
  EXPECT_EQ(proof, client_proof(token, greeting));
  EXPECT_NE(proof, server_proof(token, greeting));  // one side's proof is of no use to the other
  EXPECT_NE(proof, client_proof(Token::random(), greeting));
  EXPECT_NE(proof, client_proof(token, {std::string(32, 'S'), greeting.client_nonce, greeting.name}));
  EXPECT_NE(proof, client_proof(token, {greeting.server_nonce, std::string(32, 'C'), greeting.name}));
  EXPECT_NE(proof, client_proof(token, {greeting.server_nonce, greeting.client_nonce, "rank 4"}));
}

}  // namespace
}  // namespace trireme::store::wire
