// Values with a range, and keys without effect: what a section's reader says in one line. What is wrong is a UsageError
// with file, line and path.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

struct WholeRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

struct RealRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
};

int64_t whole(const Node& section, std::string_view key, int64_t otherwise, WholeRange range = {});
int64_t need_whole(const Node& section, std::string_view key, WholeRange range = {});
double real(const Node& section, std::string_view key, double otherwise, RealRange range = {});

/// One of `allowed`; the error for another value names the nearest of them.
std::string choice(const Node& section, std::string_view key, std::string_view otherwise,
                   const std::vector<std::string>& allowed);
/// The same for a value that is at hand. `node` is where it stands.
void check_choice(const Node& node, const std::string& value, const std::vector<std::string>& allowed);

/// For a key that Trireme knows and does not act upon: warns, once a document, that it is ignored, and why. Nothing when
/// the key is absent.
void warn_ignored(const Node& section, std::string_view key, std::string_view why);
/// The same for a switch of which one value says what Trireme does anyway: warns of the other.
void warn_unless(bool usual, const Node& section, std::string_view key, std::string_view why);

/// Keys that not every optimizer, schedule or dataset has, and the names of those that do.
using KeyOwners = std::map<std::string, std::vector<std::string>>;
/// Warns of keys of the section that the one with this name does not have.
void warn_of_keys_of_others(const Node& section, const KeyOwners& keys, const std::string& name);

}  // namespace trireme::config
