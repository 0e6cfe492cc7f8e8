#include "trireme/parallel/together.h"

#include <exception>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

// An exception as it travels.
struct Failure {
  enum Kind { none, usage, system, peer } kind = none;
  int number = 0;  // errno of a SystemError
  PeerError::Facts facts{};
  std::string text{};
};

Failure describe(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return {.kind = Failure::usage, .text = error.what()};
  if (const auto* system = dynamic_cast<const SystemError*>(&error))
    return {.kind = Failure::system, .number = system->number(), .text = system->subject()};
  const auto* peer = dynamic_cast<const PeerError*>(&error);
  const std::string text = *error.what() == '\0' ? "an error without a message" : without_backtrace(error);
  return {.kind = Failure::peer, .facts = peer ? peer->facts() : PeerError::Facts{.reason = text}, .text = text};
}

// No text of an exception has a zero byte.
constexpr char kSeparator = '\0';

std::string encode(const Failure& failure) {
  const PeerError::Facts& facts = failure.facts;
  return join({std::to_string(failure.kind), std::to_string(failure.number), std::to_string(facts.rank.value_or(-1)),
               facts.operation, std::to_string(facts.sequence), facts.group, facts.reason, failure.text},
              std::string_view(&kSeparator, 1));
}

Failure decode(const std::string& text) {
  const std::vector<std::string> fields = split(text, kSeparator);
  const int blamed = std::stoi(fields.at(2));
  return {.kind = static_cast<Failure::Kind>(std::stoi(fields.at(0))),
          .number = std::stoi(fields.at(1)),
          .facts = {.rank = blamed < 0 ? std::nullopt : std::optional(blamed),
                    .operation = fields.at(3),
                    .sequence = std::stoull(fields.at(4)),
                    .group = fields.at(5),
                    .reason = fields.at(6)},
          .text = fields.at(7)};
}

// `rank`: in the world.
[[noreturn]] void rethrow(Failure failure, int rank) {
  const std::string message = fmt::format("rank {}: {}", rank, failure.text);
  if (failure.kind == Failure::usage) throw UsageError("{}", message);
  if (failure.kind == Failure::system) throw SystemError(failure.number, "{}", message);
  if (!failure.facts.rank) failure.facts.rank = rank;
  throw PeerError(failure.facts, message);
}

}  // namespace

void together(const Group& group, const std::function<void()>& work) {
  if (is_alone(group)) return work();
  std::exception_ptr mine;
  Failure failure;
  try {
    work();
  } catch (const std::exception& error) {
    mine = std::current_exception();
    failure = describe(error);
  } catch (...) {  // the others wait for word from here, whatever it was
    mine = std::current_exception();
    failure = describe(std::runtime_error("an exception that is not a std::exception"));
  }
  const std::vector<std::string> all = all_gather_object(encode(failure), group);
  if (mine) std::rethrow_exception(mine);
  for (int member = 0; member < group.size(); ++member) {
    const Failure theirs = decode(all[static_cast<size_t>(member)]);
    if (theirs.kind != Failure::none) rethrow(theirs, world_rank(group, member));
  }
}

void on_first(const Group& group, const std::function<void()>& work) {
  together(
      group, is_alone(group) || group.rank() == 0 ? work : [] {});
}

}  // namespace trireme
