#include "trireme/config/write.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::config {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/';
}

/// Texts that mean the same with and without quotes to any YAML reader; all others get quotes.
bool is_plain(const std::string& text) {
  if (text.empty() || !is_word(text.front())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == '-' || c == '+'; });
}

std::string escaped(char c) {
  if (c == '"' || c == '\\') return {'\\', c};
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
}

std::string in_quotes(const std::string& text) {
  std::string line = "\"";
  for (const char c : text) line += escaped(c);
  return line + '"';
}

std::string key_text(const std::string& key) {
  return is_plain(key) && !is_null_word(key) ? key : in_quotes(key);
}

bool is_number_like(const Value& value) {
  return !value.quoted && !value.text.empty() && (value.text[0] == '-' || value.text[0] == '+') &&
         value.text.size() > 1 && is_plain(value.text.substr(1)) && value.text[1] >= '0' && value.text[1] <= '9';
}

std::string scalar_text(const Value& value) {
  if (value.kind == Kind::null) return "null";
  if (is_number_like(value)) return value.text;
  return value.quoted || !is_plain(value.text) || is_null_word(value.text) ? in_quotes(value.text) : value.text;
}

bool is_leaf(const Value& value) {
  return value.kind == Kind::null || value.kind == Kind::scalar;
}

/// What fits behind `key:` on the same line: scalars, lists of scalars, and whatever is empty.
bool fits_one_line(const Value& value) {
  return is_leaf(value) || (value.kind == Kind::map && value.entries.empty()) ||
         (value.kind == Kind::list &&
          std::all_of(value.items.begin(), value.items.end(), [](const ValuePtr& item) { return is_leaf(*item); }));
}

std::string one_line(const Value& value) {
  if (is_leaf(value)) return scalar_text(value);
  if (value.kind == Kind::map) return "{}";
  std::string text;
  for (const ValuePtr& item : value.items) text += (text.empty() ? "" : ", ") + scalar_text(*item);
  return "[" + text + "]";
}

/// Appends the lines of a section or list. The first line goes without its indentation when `begun` ("- key: …").
void write_block(const Value& value, size_t indent, bool begun, std::string& text) {
  const auto line_start = [&] {
    if (!std::exchange(begun, false)) text.append(indent, ' ');
  };
  for (const auto& [key, entry] : value.entries) {
    line_start();
    text += key_text(key) + ":";
    if (fits_one_line(*entry)) {
      text += " " + one_line(*entry) + "\n";
    } else {
      text += "\n";
      write_block(*entry, indent + 2, false, text);
    }
  }
  for (const ValuePtr& item : value.items) {
    line_start();
    text += "- ";
    if (fits_one_line(*item))
      text += one_line(*item) + "\n";
    else
      write_block(*item, indent + 2, true, text);
  }
}

}  // namespace

std::string write_yaml(const Value& root) {
  if (fits_one_line(root)) return one_line(root) + "\n";
  std::string text;
  write_block(root, 0, false, text);
  return text;
}

}  // namespace trireme::config
