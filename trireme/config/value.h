// The tree behind config::Node: what a YAML file holds, where each value stood, and which of them were read.
// Internal to the module: readers use Node.
//
// Thread rule: none; a tree belongs to one thread at a time.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::config {

/// Where a value was written: line 42 of ResNet50.yaml, or the option `-o Global.epochs=3` (line 0).
struct Origin {
  std::shared_ptr<const std::string> source;
  int line = 0;

  std::string text() const;  ///< "ResNet50.yaml:42"
  bool is_option() const { return line == 0 && source && source->starts_with("-o "); }
};

enum class Kind { null, scalar, list, map };

struct Value;
using ValuePtr = std::shared_ptr<Value>;

struct Value {
  Kind kind = Kind::null;
  std::string text;     // of a scalar
  bool quoted = false;  // of a scalar: 'True' is a text, True is not
  std::vector<ValuePtr> items;
  std::vector<std::pair<std::string, ValuePtr>> entries;  // of a map, in the order of the file
  Origin origin;

  // What the readers did. A map of which a key was asked for is open: its other keys must be asked for, too.
  bool read = false;
  bool open = false;
  bool reported = false;
  std::set<std::string> asked;

  ValuePtr find(std::string_view key) const;
  /// Replaces the entry or adds it.
  void set(const std::string& key, ValuePtr value);
  bool erase(std::string_view key);
};

/// What means nothing unless it is in quotes: "", "~", "null", "None".
bool is_null_word(std::string_view text);

/// "120", "a list of 3", "a section", "nothing": for messages.
std::string describe(const Value& value);

/// `over` laid upon `under`: sections are merged key by key, everything else is replaced. Both are used up.
ValuePtr merge(const ValuePtr& under, const ValuePtr& over);

/// A key as part of a dotted path.
std::string path_join(std::string_view path, std::string_view key);

}  // namespace trireme::config
