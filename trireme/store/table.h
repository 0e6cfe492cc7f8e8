// Keys and values in memory, with a limit on their total: the part that the memory store and the server share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::store {

/// Thread rule: none; the owner locks. Sizes of single keys and values are the caller's to check. Methods that write
/// throw UsageError, and change nothing, when the total would exceed the limit.
class Table {
 public:
  /// What an entry costs besides its bytes; counted so that many tiny keys cannot outgrow the limit.
  static constexpr size_t kEntryCost = 64;

  explicit Table(size_t max_bytes = SIZE_MAX) : max_bytes_(max_bytes) {}

  std::optional<std::string> find(const std::string& key) const;
  void set(const std::string& key, std::string_view value);
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired);
  bool remove(const std::string& key);
  std::map<std::string, std::string> list(const std::string& prefix) const;
  /// What the entries under `prefix` count towards bytes().
  size_t bytes_under(const std::string& prefix) const;
  size_t bytes() const { return bytes_; }

 private:
  template <typename Visit>
  void each_under(const std::string& prefix, Visit visit) const;

  size_t max_bytes_;
  size_t bytes_ = 0;
  std::map<std::string, std::string> entries_;
};

}  // namespace trireme::store
