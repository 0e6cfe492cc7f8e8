#include "trireme/store/tcp_client.h"

#include <algorithm>

#include "trireme/store/channel.h"
#include "trireme/store/rules.h"

namespace trireme::store {
namespace {

using wire::Message;
using wire::Type;

constexpr Millis kTravel{2000};  // what a reply sent at the last moment may take to arrive
constexpr Millis kOneTry{1000};  // to open one more connection before asking whether the server is still there
constexpr size_t kMaxIdle = 8;

Deadline with_travel(Deadline deadline) {
  return deadline.is_never() ? deadline : Deadline::at(deadline.time() + kTravel);
}

int64_t milliseconds_to_wait(Deadline deadline) {
  return deadline.is_never() ? -1 : deadline.left().count();
}

}  // namespace

TcpStore::TcpStore(Options options) : options_(std::move(options)) {}

TcpStore::~TcpStore() = default;

std::unique_ptr<TcpStore> TcpStore::connect(Options options, Deadline deadline) {
  if (options.name.size() > wire::kMaxName)
    throw UsageError("[store] a client's name has up to {} bytes, not {}", wire::kMaxName, options.name.size());
  std::unique_ptr<TcpStore> store(new TcpStore(std::move(options)));
  const Options& own = store->options_;
  Channel channel = Channel::open(
      {.server = own.server, .token = own.token, .name = own.name, .link_timeout = own.link_timeout}, deadline);
  const std::lock_guard lock(store->main_mutex_);
  store->main_ = std::make_unique<Channel>(std::move(channel));
  return store;
}

Message TcpStore::request(const Message& message) {
  const std::lock_guard lock(main_mutex_);
  check_not_lost();
  try {
    Message reply = main_->request(message, Deadline::in(options_.request_timeout));
    if (reply.type == Type::failed) throw UsageError("{}", reply.parts[0]);
    return reply;
  } catch (const PeerError& error) {
    const std::lock_guard state(state_mutex_);
    lost_ = error.what();
    throw;
  }
}

void TcpStore::check_not_lost() {
  const std::lock_guard lock(state_mutex_);
  if (!lost_.empty()) throw PeerError("{}", lost_);
}

std::unique_ptr<Channel> TcpStore::take_idle() {
  const std::lock_guard lock(state_mutex_);
  if (idle_.empty()) return nullptr;
  auto channel = std::move(idle_.back());
  idle_.pop_back();
  return channel;
}

std::unique_ptr<Channel> TcpStore::borrow(Deadline deadline) {
  check_not_lost();
  if (auto channel = take_idle()) return channel;
  // Shorter than the deadline, which may be the request timeout: else nothing would ask whether the server is there.
  const auto one_try = std::min<Clock::duration>(kOneTry, options_.request_timeout / 4);
  for (;;) {
    try {
      const Deadline attempt = earlier(deadline, Deadline::in(one_try));
      return std::make_unique<Channel>(Channel::open(
          {.server = options_.server, .token = options_.token, .link_timeout = options_.link_timeout}, attempt));
    } catch (const ConnectionLost&) {
      if (deadline.passed()) throw;
      server_time_ms();  // throws when the server is gone; if not, it was only busy
    }
  }
}

void TcpStore::give_back(std::unique_ptr<Channel> channel) {
  const std::lock_guard lock(state_mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(channel));
}

void TcpStore::set(const std::string& key, std::string_view value) {
  rules::check_key(key);
  rules::check_value(key, value);
  request({.type = Type::set, .parts = {key, std::string(value)}});
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  rules::check_key(key);
  const auto since = Clock::now();
  auto channel = borrow(earlier(with_travel(deadline), Deadline::in(options_.request_timeout)));
  Message reply = channel->request({.type = Type::get, .number = milliseconds_to_wait(deadline), .parts = {key}},
                                   with_travel(deadline));
  give_back(std::move(channel));
  if (reply.type != Type::value) throw rules::not_set(key, since);
  return std::move(reply.parts[0]);
}

std::optional<std::string> TcpStore::try_get(const std::string& key) {
  rules::check_key(key);
  Message reply = request({.type = Type::try_get, .parts = {key}});
  if (reply.type == Type::absent) return std::nullopt;
  return std::move(reply.parts[0]);
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  rules::check_key(key);
  return request({.type = Type::add, .number = amount, .parts = {key}}).number;
}

std::string TcpStore::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  rules::check_key(key);
  rules::check_value(key, expected);
  rules::check_value(key, desired);
  Message reply = request({.type = Type::compare_set, .parts = {key, std::string(expected), std::string(desired)}});
  return std::move(reply.parts[0]);
}

bool TcpStore::remove(const std::string& key) {
  rules::check_key(key);
  return request({.type = Type::remove, .parts = {key}}).number != 0;
}

std::map<std::string, std::string> TcpStore::list(const std::string& prefix) {
  std::map<std::string, std::string> result;
  if (prefix.size() > kMaxKey) return result;  // no key is that long
  Message reply = request({.type = Type::list, .parts = {prefix}});
  for (size_t i = 0; i + 1 < reply.parts.size(); i += 2)
    result.emplace_hint(result.end(), std::move(reply.parts[i]), std::move(reply.parts[i + 1]));
  return result;
}

Clock::duration TcpStore::ping(size_t payload_bytes, Deadline deadline) {
  if (payload_bytes > kMaxValue)
    throw UsageError("[store] a ping carries up to {} bytes, not {}", kMaxValue, payload_bytes);
  auto channel = borrow(deadline);
  const Message message{.type = Type::ping, .parts = {std::string(payload_bytes, 'p')}};
  const auto since = Clock::now();
  channel->request(message, deadline);
  const auto elapsed = Clock::now() - since;
  give_back(std::move(channel));
  return elapsed;
}

int64_t TcpStore::server_time_ms() {
  return request({.type = Type::time}).number;
}

Token enrol(const Endpoint& server, Deadline deadline) {
  return Channel::enrol(server, deadline);
}

}  // namespace trireme::store
