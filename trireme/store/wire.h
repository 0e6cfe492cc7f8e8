// The store's messages as bytes. Pure functions: no socket, no clock, safe on any input.
//
//   header   "TRM" version(1)  type(1)  zero(3)  payload length(4)
//   payload  number(8), then parts until its end: length(4) bytes
//
// Numbers are little-endian. Each type fixes how many parts there are and how long each may be; whatever differs is
// bad.
//
//   std::string bytes = wire::encode({.type = wire::Type::set, .parts = {"key", "value"}});
//   wire::Decoded next = wire::decode(bytes, wire::kMaxPayload);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::store::wire {

inline constexpr uint8_t kVersion = 2;
inline constexpr size_t kHeaderSize = 12;
inline constexpr size_t kNonceSize = 32;
inline constexpr size_t kMaxName = 256;
inline constexpr size_t kMaxReason = 1024;
/// The longest payload of any type: the answer to list.
inline constexpr size_t kMaxPayload = size_t{64} << 20;
/// The longest payload from a client that has not proved itself.
inline constexpr size_t kMaxGreeting = 1024;

enum class Type : uint8_t {
  // The opening, in this order. The server sends first, so that a refusal is never lost behind the client's bytes.
  challenge = 1,  // server: nonce
  hello = 2,      // client: nonce, name, proof
  welcome = 3,    // server: proof
  refuse = 4,     // server: reason; closes
  enrol = 5,      // client: public key (in place of hello)
  enrolled = 6,   // server: public key, sealed token; closes
  // Requests.
  set = 16,          // key, value
  get = 17,          // key; number: milliseconds to wait, negative for ever
  try_get = 18,      // key
  add = 19,          // key; number: amount
  compare_set = 20,  // key, expected, desired
  remove = 21,       // key
  list = 22,         // prefix
  ping = 23,         // any bytes, returned as value
  time = 24,         // answered by the server's clock as number
  // Replies.
  done = 32,
  value = 33,    // value
  absent = 34,   // no such key, or not in time
  number = 35,   // number
  entries = 36,  // key, value, key, value, …
  failed = 37,   // reason: the request was understood and cannot be done (UsageError)
};

struct Message {
  Type type = Type::done;
  int64_t number = 0;
  std::vector<std::string> parts{};
  bool operator==(const Message&) const = default;
};

std::string encode(const Message& message);
/// Bytes that encode() would make.
size_t encoded_size(const Message& message);

enum class Status { incomplete, complete, bad };

struct Decoded {
  Status status = Status::incomplete;
  Message message{};          ///< when complete
  size_t size = kHeaderSize;  ///< whole length of the message in bytes, as far as known
  const char* error = "";     ///< when bad
};

/// Reads the message at the start of `bytes`. Bad bytes are seen as early as possible, a length above `max_payload` or
/// above what the type allows before any of the payload is there; memory is taken only for bytes that have arrived.
Decoded decode(std::string_view bytes, size_t max_payload);

}  // namespace trireme::store::wire
