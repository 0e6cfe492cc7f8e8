#include <utility>

#include "trireme/config/document.h"
#include "trireme/config/parse.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

constexpr size_t kMaxParts = 30;
constexpr int kMaxValueDepth = 20;  // together with the parts: what a file may have

/// `-o Global.epochs=3`, as messages call it.
std::string shown(const std::string& option) {
  constexpr size_t kMaxShown = 500;
  return "-o " + printable(option.substr(0, kMaxShown)) + (option.size() > kMaxShown ? "…" : "");
}

struct Assignment {
  std::vector<std::string> parts;
  ValuePtr value;
};

std::vector<std::string> parse_key(std::string_view key, const std::string& option) {
  const auto parts = split(trim(key), '.');
  if (parts.empty() || parts.size() > kMaxParts)
    throw UsageError("{}: the key has {} parts; 1 to {} are allowed", shown(option), parts.size(), kMaxParts);
  for (const std::string& part : parts)
    if (part.empty()) throw UsageError("{}: the key has an empty part; write it as Global.epochs", shown(option));
  if (key.size() > Limits{}.key_bytes || printable(key) != key)
    throw UsageError("{}: a key is a printable text of at most {} bytes", shown(option), Limits{}.key_bytes);
  if (parts[0] == "base") throw UsageError("{}: what a file builds upon cannot be changed by an option", shown(option));
  return parts;
}

Assignment parse_option(const std::string& option) {
  const size_t equals = option.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError("{}: expected KEY=VALUE, for example -o Global.epochs=120", shown(option));
  Assignment assignment{.parts = parse_key(std::string_view(option).substr(0, equals), option), .value = nullptr};
  const std::string text = option.substr(equals + 1);
  if (text.starts_with('=')) throw UsageError("{}: one '=' between key and value is enough", shown(option));
  assignment.value = parse_yaml(text, shown(option), 0, {.depth = kMaxValueDepth});
  assignment.value->origin = {std::make_shared<const std::string>(shown(option)), 0};
  return assignment;
}

/// One override on its way down the tree.
class Walk {
 public:
  Walk(Value& root, const std::string& option) : in_(&root), option_(shown(option)) {}

  void enter(const std::string& part) {
    in_ = place(part).get();
    path_ = path_join(path_, part);
  }
  void assign(const std::string& part, const ValuePtr& value) { place(part) = value; }

 private:
  /// The place for `part` in the section or list; null is made into a section first.
  ValuePtr& place(const std::string& part) {
    if (in_->kind == Kind::list) return in_->items[list_index(part)];
    if (in_->kind == Kind::scalar)
      throw UsageError("{}: {} is {} ({}), not a section, so it cannot have a key '{}'", option_, path_, describe(*in_),
                       in_->origin.text(), part);
    in_->kind = Kind::map;
    for (auto& [key, entry] : in_->entries)
      if (key == part) return entry;
    tell_addition(part);
    in_->entries.emplace_back(part, std::make_shared<Value>());
    in_->entries.back().second->origin.source = std::make_shared<const std::string>(option_);
    return in_->entries.back().second;
  }

  size_t list_index(const std::string& part) const {
    const auto index = parse_int(part, 0, static_cast<int64_t>(in_->items.size()) - 1);
    if (!index)
      throw UsageError("{}: {} ({}) is a list of {}; '{}' is not one of its indices", option_, path_,
                       in_->origin.text(), in_->items.size(), part);
    return static_cast<size_t>(*index);
  }

  void tell_addition(const std::string& part) {
    if (!std::exchange(warned_, true))
      log_info("{}: the configuration has no {}; added", option_, path_join(path_, part));
  }

  Value* in_;
  std::string option_;
  std::string path_;
  bool warned_ = false;
};

}  // namespace

void apply_override(Value& root, const std::string& option) {
  const Assignment assignment = parse_option(option);
  Walk walk(root, option);
  for (size_t i = 0; i + 1 < assignment.parts.size(); ++i) walk.enter(assignment.parts[i]);
  walk.assign(assignment.parts.back(), assignment.value);
}

}  // namespace trireme::config
