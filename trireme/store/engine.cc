#include "trireme/store/engine.h"

#include "trireme/store/rules.h"

namespace trireme::store {
namespace {

using wire::Message;
using wire::Type;

Message number(int64_t value) {
  return {.type = Type::number, .number = value};
}

Message value_or_absent(std::optional<std::string> value) {
  if (!value) return {.type = Type::absent};
  return {.type = Type::value, .parts = {*std::move(value)}};
}

Message failed(std::string_view reason) {
  return {.type = Type::failed, .parts = {std::string(reason.substr(0, wire::kMaxReason))}};
}

// A wait beyond the clock's range never ends.
Deadline deadline_from(int64_t ms) {
  constexpr int64_t kYear = int64_t{366} * 24 * 3600 * 1000;
  return ms < 0 || ms > kYear ? Deadline::never() : Deadline::in(Millis(ms));
}

int64_t wall_clock_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<Millis>(now).count();
}

bool writes(Type type) {
  return type == Type::set || type == Type::add || type == Type::compare_set;
}

}  // namespace

bool StoreEngine::is_request(Type type) {
  return type >= Type::set && type <= Type::time;
}

std::optional<Bytes> StoreEngine::execute(Client client, const Message& request) {
  Message reply = answer(request);
  if (request.type == Type::get && reply.type == Type::absent) {
    wait(client, request);
    return std::nullopt;
  }
  if (writes(request.type) && reply.type != Type::failed) wake(request.parts[0]);
  return encoded(reply);
}

Message StoreEngine::answer(const Message& request) try {
  const auto& parts = request.parts;
  switch (request.type) {
    case Type::set:
      table_.set(parts[0], parts[1]);
      return {.type = Type::done};
    case Type::get:
    case Type::try_get:
      return value_or_absent(table_.find(parts[0]));
    case Type::add:
      return number(table_.add(parts[0], request.number));
    case Type::compare_set:
      return value_or_absent(table_.compare_set(parts[0], parts[1], parts[2]));
    case Type::remove:
      return number(table_.remove(parts[0]) ? 1 : 0);
    case Type::list:
      return answer_list(parts[0]);
    case Type::ping:
      return {.type = Type::value, .parts = parts};
    default:
      return number(wall_clock_ms());
  }
} catch (const UsageError& error) {
  return failed(error.what());
}

Message StoreEngine::answer_list(const std::string& prefix) const {
  constexpr size_t kLimit = wire::kMaxPayload - Table::kEntryCost;  // an entry costs less on the wire than in the table
  const size_t bytes = table_.bytes_under(prefix);
  if (bytes > kLimit)
    throw UsageError("[store] the keys under \"{}\" hold {} bytes, a list may have {}; list a longer prefix",
                     rules::shown(prefix), bytes, kLimit);
  Message reply{.type = Type::entries};
  for (auto& [key, value] : table_.list(prefix)) {
    reply.parts.push_back(key);
    reply.parts.push_back(value);
  }
  return reply;
}

void StoreEngine::wait(Client client, const Message& request) {
  const Deadline deadline = deadline_from(request.number);
  waiting_.insert_or_assign(client, Wait{request.parts[0], deadline});
  by_key_[request.parts[0]].insert(client);
  by_time_.emplace(deadline.time(), client);
}

void StoreEngine::wake(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  auto value = table_.find(key);
  if (!value) return;  // a compare_set that did not match
  const Bytes reply = encoded(value_or_absent(std::move(value)));
  const std::set<Client> clients = found->second;
  for (const Client client : clients) {
    forget(client);
    answers_.emplace_back(client, reply);
  }
}

void StoreEngine::expire() {
  while (!by_time_.empty() && Deadline::at(by_time_.begin()->first).passed()) {
    const Client client = by_time_.begin()->second;
    forget(client);
    answers_.emplace_back(client, encoded({.type = Type::absent}));
  }
}

Deadline StoreEngine::next_deadline() const {
  return by_time_.empty() ? Deadline::never() : Deadline::at(by_time_.begin()->first);
}

void StoreEngine::forget(Client client) {
  const auto found = waiting_.find(client);
  if (found == waiting_.end()) return;
  const auto key = by_key_.find(found->second.key);
  key->second.erase(client);
  if (key->second.empty()) by_key_.erase(key);
  by_time_.erase({found->second.deadline.time(), client});
  waiting_.erase(found);
}

}  // namespace trireme::store
