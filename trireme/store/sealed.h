// What follows the greeting. A third party between the two sides cannot read a message, and cannot change, repeat, swap
// or drop one without notice.
//
//   record   length(4), that many encrypted bytes, their tag(16)
//
// A sender cuts its stream of messages into records. Each direction has a key of its own, made out of the token and
// both nonces of the greeting, so a record of another connection, or one that is sent back, does not open. The nonce of
// a record is its number in the stream, which is not sent: a record opens in its own place only.
//
//   const SessionKeys keys = session_keys(token, greeting);
//   Sealer sealer(keys.client);                  // the client's side
//   send(sealer.seal(wire::encode(request)));
//   MessageReader reader;                        // the server's side
//   reader.open_with(keys.client);               // once the greeting has ended
//   reader.append(received);
//   wire::Decoded next = reader.next(wire::kMaxPayload);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/core/token.h"
#include "trireme/store/handshake.h"
#include "trireme/store/wire.h"

namespace trireme::store {

/// The most bytes of messages in one record.
inline constexpr size_t kMaxRecord = 64u << 10;
/// What a record has beyond the bytes of its messages.
inline constexpr size_t kRecordOverhead = 4 + Cipher::kTagSize;

/// One for each direction, named after the side that sends.
struct SessionKeys {
  std::string client;
  std::string server;
};

SessionKeys session_keys(const Token& token, const Greeting& greeting);

/// Thread rule: one thread at a time.
class Sealer {
 public:
  explicit Sealer(std::string_view key) : cipher_(key) {}
  /// The records that hold `bytes`, as many as it takes.
  std::string seal(std::string_view bytes);

 private:
  Cipher cipher_;
  uint64_t number_ = 0;
};

/// Thread rule: one thread at a time.
class Opener {
 public:
  explicit Opener(std::string_view key) : cipher_(key) {}

  struct Opened {
    wire::Status status = wire::Status::incomplete;
    std::string bytes{};  ///< when complete
    size_t size = 0;      ///< of the whole record, when complete
  };
  /// Opens the record at the start of `sealed`. After a bad one nothing opens any more.
  Opened open(std::string_view sealed);

 private:
  Cipher cipher_;
  uint64_t number_ = 0;
};

/// Takes in bytes as they arrive, gives out messages. Thread rule: one thread at a time.
class MessageReader {
 public:
  void append(std::string_view bytes);
  /// What has not been given out as a message yet, and all that arrives from now on, is sealed.
  void open_with(std::string_view key);
  /// Takes the next whole message out of what has arrived.
  wire::Decoded next(size_t max_payload);
  /// Bytes of a message that is not whole yet.
  size_t unread() const { return arrived_.view().size() + opened_.view().size(); }

 private:
  struct Buffer {
    std::string bytes;
    size_t taken = 0;
    std::string_view view() const { return std::string_view(bytes).substr(taken); }
    void compact();
  };

  void open_records();

  Buffer arrived_;  // sealed once there is an opener
  Buffer opened_;
  std::optional<Opener> opener_;
  wire::Status record_ = wire::Status::incomplete;  // the last one
};

}  // namespace trireme::store
