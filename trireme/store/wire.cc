#include "trireme/store/wire.h"

#include <algorithm>
#include <map>

#include "trireme/store/store.h"

namespace trireme::store::wire {
namespace {

constexpr std::string_view kMagic("TRM\x02", 4);
static_assert(kMagic[3] == kVersion && kVersion == 2, "the text below names the version too");
constexpr const char* kOtherVersion = "it is of another version of the protocol, expected was version 2";
constexpr size_t kNumberSize = 8;
constexpr size_t kLengthSize = 4;

struct Part {
  size_t low;
  size_t high;
};

constexpr Part kNonce{kNonceSize, kNonceSize};
constexpr Part kDigest{32, 32};
constexpr Part kName{0, kMaxName};
constexpr Part kReason{0, kMaxReason};
constexpr Part kKey{1, Store::kMaxKey};
constexpr Part kPrefix{0, Store::kMaxKey};
constexpr Part kValue{0, Store::kMaxValue};
constexpr Part kSealed{32, 256};

struct Schema {
  std::vector<Part> parts;
  bool repeated = false;  // the parts may come any number of times
};

// Null for a type that does not exist.
const Schema* schema_of(Type type) {
  static const std::map<Type, Schema> kSchemas = {{Type::challenge, {{kNonce}}},
                                                  {Type::hello, {{kNonce, kName, kDigest}}},
                                                  {Type::welcome, {{kDigest}}},
                                                  {Type::refuse, {{kReason}}},
                                                  {Type::enrol, {{kDigest}}},
                                                  {Type::enrolled, {{kDigest, kSealed}}},
                                                  {Type::set, {{kKey, kValue}}},
                                                  {Type::get, {{kKey}}},
                                                  {Type::try_get, {{kKey}}},
                                                  {Type::add, {{kKey}}},
                                                  {Type::compare_set, {{kKey, kValue, kValue}}},
                                                  {Type::remove, {{kKey}}},
                                                  {Type::list, {{kPrefix}}},
                                                  {Type::ping, {{kValue}}},
                                                  {Type::time, {}},
                                                  {Type::done, {}},
                                                  {Type::value, {{kValue}}},
                                                  {Type::absent, {}},
                                                  {Type::number, {}},
                                                  {Type::entries, {{kKey, kValue}, true}},
                                                  {Type::failed, {{kReason}}}};
  const auto found = kSchemas.find(type);
  return found == kSchemas.end() ? nullptr : &found->second;
}

size_t longest_payload(const Schema& schema) {
  if (schema.repeated) return kMaxPayload;
  size_t size = kNumberSize;
  for (const Part& part : schema.parts) size += kLengthSize + part.high;
  return size;
}

template <typename T>
void put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
}

uint64_t take(std::string_view& in, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<unsigned char>(in[i])} << (8 * i);
  in.remove_prefix(count);
  return value;
}

bool is_other_version(std::string_view bytes) {
  const size_t name = kMagic.size() - 1;
  return bytes.size() > name && bytes.substr(0, name) == kMagic.substr(0, name);
}

Decoded bad(const char* error) {
  return {.status = Status::bad, .error = error};
}

// The next part of the payload; null when it is cut short or has the wrong length.
const char* take_part(std::string_view& payload, const Part& rule, std::vector<std::string>& parts) {
  if (payload.size() < kLengthSize) return "a part is missing";
  const size_t length = take(payload, kLengthSize);
  if (length > payload.size()) return "a part is longer than its message";
  if (length < rule.low || length > rule.high) return "a part has a length that its message type does not allow";
  parts.emplace_back(payload.substr(0, length));
  payload.remove_prefix(length);
  return nullptr;
}

const char* take_parts(std::string_view payload, const Schema& schema, std::vector<std::string>& parts) {
  if (schema.repeated && payload.empty()) return nullptr;
  do {
    for (const Part& rule : schema.parts)
      if (const char* error = take_part(payload, rule, parts)) return error;
  } while (schema.repeated && !payload.empty());
  return payload.empty() ? nullptr : "bytes follow the last part";
}

Decoded decode_payload(Type type, std::string_view payload, const Schema& schema) {
  Decoded decoded{.status = Status::complete, .message = {.type = type}, .size = kHeaderSize + payload.size()};
  decoded.message.number = static_cast<int64_t>(take(payload, kNumberSize));
  if (const char* error = take_parts(payload, schema, decoded.message.parts)) return bad(error);
  return decoded;
}

}  // namespace

size_t encoded_size(const Message& message) {
  size_t size = kHeaderSize + kNumberSize;
  for (const std::string& part : message.parts) size += kLengthSize + part.size();
  return size;
}

std::string encode(const Message& message) {
  std::string out;
  const size_t size = encoded_size(message);
  out.reserve(size);
  out += kMagic;
  put(out, static_cast<uint8_t>(message.type));
  out.append(3, '\0');
  put(out, static_cast<uint32_t>(size - kHeaderSize));
  put(out, message.number);
  for (const std::string& part : message.parts) {
    put(out, static_cast<uint32_t>(part.size()));
    out += part;
  }
  return out;
}

Decoded decode(std::string_view bytes, size_t max_payload) {
  const size_t seen = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, seen) != kMagic.substr(0, seen))
    return bad(is_other_version(bytes) ? kOtherVersion : "it does not begin as a message of a Trireme store");
  if (bytes.size() < kHeaderSize) return {};
  std::string_view rest = bytes.substr(kMagic.size());
  const auto type = static_cast<Type>(take(rest, 1));
  const Schema* schema = schema_of(type);
  if (!schema) return bad("its type is unknown");
  if (take(rest, 3) != 0) return bad("its reserved bytes are not zero");
  const size_t length = take(rest, kLengthSize);
  if (length > std::min(max_payload, longest_payload(*schema))) return bad("its length is above the limit of its type");
  if (length < kNumberSize) return bad("its length is below that of an empty message");
  if (rest.size() < length) return {.status = Status::incomplete, .size = kHeaderSize + length};
  return decode_payload(type, rest.substr(0, length), *schema);
}

}  // namespace trireme::store::wire
