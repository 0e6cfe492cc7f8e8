#include "trireme/store/ended_ranks.h"

#include <fmt/ranges.h>

#include <climits>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::store {
namespace {

constexpr char kSeparator = '\n';  // between the operation and the ranks

int parse_rank(const std::string& text) {
  const auto rank = parse_int(text, 0, INT_MAX);
  if (!rank)
    throw PeerError("[store] \"{}\" is not a rank; do all processes run the same version of Trireme?", printable(text));
  return static_cast<int>(*rank);
}

std::string encode(const EndedRanks::Wait& wait) {
  return fmt::format("{}{}{}", wait.operation, kSeparator, fmt::join(wait.ranks, ","));
}

EndedRanks::Wait decode(int rank, const std::string& text) {
  const size_t end = text.find(kSeparator);
  EndedRanks::Wait wait{.rank = rank, .operation = text.substr(0, end)};
  if (end == std::string::npos) return wait;
  for (const std::string& waited_for : split(text.substr(end + 1), ',')) wait.ranks.push_back(parse_rank(waited_for));
  return wait;
}

}  // namespace

EndedRanks::EndedRanks(std::shared_ptr<Store> store, int attempt)
    : store_(std::move(store)),
      end_prefix_(fmt::format("ended/{}/", attempt)),
      wait_prefix_(fmt::format("gave_up/{}/", attempt)) {}

void EndedRanks::note_end(int rank, const std::string& how) {
  store_->set(end_prefix_ + std::to_string(rank), how);
}

std::map<int, std::string> EndedRanks::list() {
  std::map<int, std::string> ended;
  for (const auto& [key, how] : store_->list(end_prefix_)) ended[parse_rank(key.substr(end_prefix_.size()))] = how;
  return ended;
}

void EndedRanks::note_wait(const Wait& wait) noexcept {
  try {
    store_->set(wait_prefix_ + std::to_string(wait.rank), encode(wait));
  } catch (const std::exception&) {
  }
}

std::optional<EndedRanks::Wait> EndedRanks::wait_of(int rank) {
  const auto text = store_->try_get(wait_prefix_ + std::to_string(rank));
  return text ? std::optional(decode(rank, *text)) : std::nullopt;
}

std::vector<EndedRanks::Wait> EndedRanks::waits() {
  std::vector<Wait> waits;
  for (const auto& [key, text] : store_->list(wait_prefix_))
    waits.push_back(decode(parse_rank(key.substr(wait_prefix_.size())), text));
  return waits;
}

}  // namespace trireme::store
