#include "trireme/parallel/together.h"

#include <exception>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

// An exception as it travels.
struct Failure {
  enum Kind { none, usage, system, peer } kind = none;
  int number = 0;  // errno of a SystemError
  std::string text;
};

Failure describe(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return {Failure::usage, 0, error.what()};
  if (const auto* system = dynamic_cast<const SystemError*>(&error)) {
    std::string text = error.what();
    const std::string reason = ": " + errno_text(system->number());  // the exception made of it says it again
    if (text.ends_with(reason)) text.resize(text.size() - reason.size());
    return {Failure::system, system->number(), text};
  }
  return {Failure::peer, 0, error.what()};
}

std::string to_text(const Failure& failure) {
  return fmt::format("{} {} {}", static_cast<int>(failure.kind), failure.number, failure.text);
}

Failure::Kind kind_of(const std::string& text) {
  return static_cast<Failure::Kind>(text.at(0) - '0');
}

[[noreturn]] void rethrow(const std::string& text, int rank) {
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  const std::string said = text.substr(second + 1);
  const std::string message = fmt::format("rank {}: {}", rank, said.empty() ? "an error without a message" : said);
  switch (kind_of(text)) {
    case Failure::usage:
      throw UsageError("{}", message);
    case Failure::system:
      throw SystemError(std::stoi(text.substr(first + 1)), "{}", message);
    default:
      throw PeerError("{}", message);
  }
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
    failure = {Failure::peer, 0, "an exception that is not a std::exception"};
  }
  const std::vector<std::string> all = all_gather_object(to_text(failure), group);
  if (mine) std::rethrow_exception(mine);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (kind_of(all[rank]) != Failure::none) rethrow(all[rank], static_cast<int>(rank));
}

void on_first(const Group& group, const std::function<void()>& work) {
  together(
      group, is_alone(group) || group.rank() == 0 ? work : [] {});
}

}  // namespace trireme
