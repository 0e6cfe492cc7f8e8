// A value of a configuration file, with the file and line it comes from and the keys that were read.
//
// A Node is a small handle: copies refer to the same value. get(), find() and section() treat a key that is null as
// absent. Reading a key marks it as known: unread.h lists the keys of a section that were never read. All errors are
// UsageErrors that name file, line and dotted path:
//
//   const Node lr = root.section("Optimizer").section("lr");
//   lr.get<int64_t>("warmup_epoch", 0);   // 0 when the key is absent
//   lr.need<double>("learning_rate");     // ResNet50.yaml:42: Optimizer.lr.learning_rate: expected a number, got 'x'
//
// Thread rule: one thread at a time for all nodes of a document, since reading marks keys as known.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/value.h"

namespace trireme::config {

class Node {
 public:
  Node();
  Node(ValuePtr value, std::string path);

  bool is_null() const { return value_->kind == Kind::null; }
  bool is_map() const { return value_->kind == Kind::map; }
  bool is_list() const { return value_->kind == Kind::list; }
  bool is_scalar() const { return value_->kind == Kind::scalar; }
  bool is_bool() const;  ///< True or False, not in quotes

  /// bool, int, int64_t, double, std::string, Node, or a std::vector of these (for a list).
  template <typename T>
  T as() const;

  /// The value of a key, or what to take when there is none.
  template <typename T>
  T get(std::string_view key, T otherwise) const;
  template <typename T>
  std::optional<T> find(std::string_view key) const;
  template <typename T>
  T need(std::string_view key) const;
  /// As find(); a single value counts as a list of one: `topk: 5`.
  template <typename T>
  std::optional<std::vector<T>> find_list_or_one(std::string_view key) const;

  bool has(std::string_view key) const { return !at(key).is_null(); }
  /// Whatever the key holds; a null node when it is absent. Requires a section or null.
  Node at(std::string_view key) const;
  /// As at(), and it is a section or null.
  Node section(std::string_view key) const;
  Node need_section(std::string_view key) const;

  /// Of a list; null has none. Throws for anything else.
  std::vector<Node> items() const;
  /// Of a section, all of which are thereby known; null has none. Throws for anything else.
  std::vector<std::pair<std::string, Node>> entries() const;

  const std::string& path() const { return path_; }            ///< "Optimizer.lr"
  std::string where() const { return value_->origin.text(); }  ///< "ResNet50.yaml:42"
  std::string shown() const { return describe(*value_); }      ///< for messages: "'fast'", "a list of 3"

  /// Whether it came from the command line (-o) and not from a file.
  bool is_option() const { return value_->origin.is_option(); }
  /// For the message that a key is missing: "; is 'Optimiser' (ResNet50.yaml:12) a slip?" when the section has a key
  /// with nearly that name that was never read, or "".
  std::string slip_of(std::string_view key) const;

  /// Says that others will ask for further keys of this section: unread.h does not count it until one of them does.
  void hand_on() const { value_->open = false; }

  /// Throws UsageError "FILE:LINE: PATH: message".
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    refuse(fmt::format(format, std::forward<Args>(args)...));
  }
  /// As fail(), to be logged: "FILE:LINE: PATH: message".
  std::string remark(std::string_view message) const;

  const ValuePtr& value() const { return value_; }

 private:
  [[noreturn]] void refuse(const std::string& message) const;
  Node required(std::string_view key) const;

  ValuePtr value_;  // never nullptr
  std::string path_;
};

namespace detail {
void read(const Node& node, bool& value);
void read(const Node& node, int& value);
void read(const Node& node, int64_t& value);
void read(const Node& node, double& value);
void read(const Node& node, std::string& value);
inline void read(const Node& node, Node& value) {
  value = node;
}
template <typename T>
void read(const Node& node, std::vector<T>& value) {
  if (!node.is_list()) node.fail("expected a list, got {}", node.shown());
  for (const Node& item : node.items()) value.push_back(item.as<T>());
}
}  // namespace detail

template <typename T>
T Node::as() const {
  T value{};
  detail::read(*this, value);
  return value;
}

template <typename T>
T Node::get(std::string_view key, T otherwise) const {
  const Node node = at(key);
  return node.is_null() ? std::move(otherwise) : node.as<T>();
}

template <typename T>
std::optional<T> Node::find(std::string_view key) const {
  const Node node = at(key);
  return node.is_null() ? std::nullopt : std::optional<T>(node.as<T>());
}

template <typename T>
T Node::need(std::string_view key) const {
  return required(key).as<T>();
}

template <typename T>
std::optional<std::vector<T>> Node::find_list_or_one(std::string_view key) const {
  const Node node = at(key);
  if (node.is_null()) return std::nullopt;
  return node.is_list() ? node.as<std::vector<T>>() : std::vector<T>{node.as<T>()};
}

/// An entry of a list of named things with parameters, the form PaddleClas gives its operators, losses and models:
///
///   - RandCropImage:
///       size: 224
///   - ToCHWImage:
struct NamedNode {
  std::string name;
  Node params;  ///< a section or null; not opened (unread.h) until one of its keys is asked for
};

/// {"RandCropImage", its parameters} and {"ToCHWImage", null} of the list above. Null gives an empty list. Throws
/// UsageError for an entry that is not one name; the frequent slip of parameters that are not indented below their name
/// has a message of its own.
std::vector<NamedNode> read_named_list(const Node& list);

}  // namespace trireme::config
