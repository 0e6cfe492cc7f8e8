#include "trireme/store/sealed.h"

#include <algorithm>

namespace trireme::store {
namespace {

using wire::Status;

constexpr size_t kLengthSize = 4;
constexpr const char* kChangedOnTheWay = "it was changed, repeated, swapped or cut on the way";

void put(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::string nonce_of(uint64_t number) {
  std::string nonce;
  put(nonce, number, Cipher::kNonceSize - kLengthSize);
  nonce.append(kLengthSize, '\0');
  return nonce;
}

size_t length_of(std::string_view record) {
  size_t length = 0;
  for (size_t i = 0; i < kLengthSize; ++i) length |= size_t{static_cast<unsigned char>(record[i])} << (8 * i);
  return length;
}

}  // namespace

SessionKeys session_keys(const Token& token, const Greeting& greeting) {
  const std::string keys = hkdf_sha256(token.bytes(), greeting.server_nonce + greeting.client_nonce,
                                       "trireme store 2 records", 2 * Cipher::kKeySize);
  return {.client = keys.substr(0, Cipher::kKeySize), .server = keys.substr(Cipher::kKeySize)};
}

std::string Sealer::seal(std::string_view bytes) {
  std::string records;
  records.reserve(bytes.size() + (bytes.size() / kMaxRecord + 1) * kRecordOverhead);
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kMaxRecord);
    put(records, part.size(), kLengthSize);
    records += cipher_.seal(nonce_of(number_++), part);
    bytes.remove_prefix(part.size());
  }
  return records;
}

Opener::Opened Opener::open(std::string_view sealed) {
  if (sealed.size() < kLengthSize) return {};
  const size_t length = length_of(sealed);
  if (length == 0 || length > kMaxRecord) return {.status = Status::bad};
  const size_t size = length + kRecordOverhead;
  if (sealed.size() < size) return {};
  auto bytes = cipher_.open(nonce_of(number_), sealed.substr(kLengthSize, size - kLengthSize));
  if (!bytes) return {.status = Status::bad};
  ++number_;
  return {.status = Status::complete, .bytes = *std::move(bytes), .size = size};
}

void MessageReader::append(std::string_view bytes) {
  arrived_.bytes += bytes;
  open_records();
}

void MessageReader::open_with(std::string_view key) {
  opener_.emplace(key);
  open_records();
}

// Each as soon as it is whole, so that a long message is not kept twice.
void MessageReader::open_records() {
  while (opener_ && record_ != Status::bad) {
    Opener::Opened record = opener_->open(arrived_.view());
    arrived_.taken += record.size;
    opened_.bytes += record.bytes;
    record_ = record.status;
    if (record_ == Status::incomplete) return arrived_.compact();
  }
}

wire::Decoded MessageReader::next(size_t max_payload) {
  Buffer& messages = opener_ ? opened_ : arrived_;
  wire::Decoded decoded = wire::decode(messages.view(), max_payload);
  if (decoded.status == Status::complete) messages.taken += decoded.size;
  if (decoded.status != Status::incomplete) return decoded;
  if (record_ == Status::bad) return {.status = Status::bad, .error = kChangedOnTheWay};
  messages.compact();
  return decoded;
}

// Gives memory back once what is in it has been understood: a client that sent a large value once keeps none of it.
void MessageReader::Buffer::compact() {
  if (taken == 0) return;
  std::string(bytes, taken).swap(bytes);
  taken = 0;
}

}  // namespace trireme::store
