// A protocol buffer message while it is written: fields in the order of the calls. For the few messages that event
// files and ONNX files are made of, this saves users a library whose versions do not mix in one process.
//
//   Message dimension = Message().bytes(2, "batch");
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::io {

class Message {
 public:
  Message& integer(int field, int64_t value) {
    key(field, kVarint);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& number(int field, float value) { return fixed(field, kFixed32, value); }
  Message& number(int field, double value) { return fixed(field, kFixed64, value); }
  Message& bytes(int field, std::string_view value) {
    text_ += value_follows(field, value.size()).text();
    text_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.text_); }

  /// What stands before a value of so many bytes, for one that is written elsewhere.
  static Message value_follows(int field, uint64_t size) {
    Message head;
    head.key(field, kSized);
    head.varint(size);
    return head;
  }

  /// Fields that are already in their written form.
  Message& append(std::string_view fields) {
    text_ += fields;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  enum WireType { kVarint = 0, kFixed64 = 1, kSized = 2, kFixed32 = 5 };

  void key(int field, WireType type) { varint(static_cast<uint64_t>(field) << 3 | type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  template <typename Number>
  Message& fixed(int field, WireType type, Number value) {
    key(field, type);
    const auto raw = std::bit_cast<std::array<char, sizeof value>>(value);
    text_.append(raw.data(), raw.size());
    return *this;
  }

  std::string text_;
};

}  // namespace trireme::io
