#include "trireme/store/etcd_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/core/backoff.h"
#include "trireme/core/base64.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/text.h"
#include "trireme/store/etcd_gateway.h"
#include "trireme/store/rules.h"

namespace trireme::store {
namespace {

using Json = nlohmann::json;
using Repeat = EtcdGateway::Repeat;

std::string text_field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string bytes_field(const Json& object, const char* name) {
  Base64Decoded decoded = base64_decode(text_field(object, name));  // etcd leaves empty fields out
  if (!decoded.ok()) throw PeerError("[store] etcd sent a \"{}\" that is not Base64: {}", name, decoded.error);
  return std::move(decoded.bytes);
}

bool bool_field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

Json array_field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : Json::array();
}

// The first key after all that start with `prefix`; one zero byte means the end of everything.
std::string end_of(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

Json range_of(const std::string& prefix) {
  return {{"key", base64_encode(prefix.empty() ? std::string(1, '\0') : prefix)},
          {"range_end", base64_encode(end_of(prefix))}};
}

Json put_request(const std::string& key, std::string_view value, const std::string& lease) {
  Json put{{"key", base64_encode(key)}, {"value", base64_encode(value)}};
  if (!lease.empty()) put["lease"] = lease;
  return put;
}

}  // namespace

EtcdStore::EtcdStore(Options options)
    : options_(std::move(options)), gateway_(std::make_unique<EtcdGateway>(options_.server, options_.patience)) {
  gateway_->post("/v3/maintenance/status", Json::object(), Repeat::harmless);
  if (options_.lease_ttl.count() <= 0) return;
  grant_lease();
  keeper_ = start_quiet_thread("an etcd lease", [this] { keep_lease_alive(); });
}

EtcdStore::~EtcdStore() {
  if (!keeper_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  keeper_.join();
  try {
    gateway_->post("/v3/lease/revoke", {{"ID", lease_}}, Repeat::harmless, Deadline::in(std::chrono::seconds(1)));
  } catch (const Error& error) {
    log_debug("{}; the keys go when their lease ends", error.what());
  }
}

void EtcdStore::grant_lease() {
  note_renewal(Clock::now());
  const Json answer =
      gateway_->post("/v3/lease/grant", {{"TTL", options_.lease_ttl.count()}, {"ID", 0}}, Repeat::harmless);
  lease_ = text_field(answer, "ID");
  if (lease_.empty()) throw PeerError("[store] etcd at {} granted no lease", to_string(options_.server));
}

// Has its own connection, so that a slow request cannot make the lease end.
void EtcdStore::keep_lease_alive() {
  EtcdGateway gateway(options_.server, options_.lease_ttl / 3);
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, std::chrono::duration_cast<Millis>(options_.lease_ttl) / 3,
                         [&]() TRIREME_REQUIRES(mutex_) { return stopping_; })) {
    lock.unlock();
    const bool alive = renew_lease(gateway);
    lock.lock();
    if (alive) continue;
    lease_lost_ = true;
    return;
  }
}

// False only when etcd says that the lease has ended; an outage may still pass.
bool EtcdStore::renew_lease(EtcdGateway& gateway) try {
  const auto sent = Clock::now();
  const Json answer = gateway.post("/v3/lease/keepalive", {{"ID", lease_}}, Repeat::harmless);
  const auto result = answer.find("result");
  const bool alive = result == answer.end() || parse_int(text_field(*result, "TTL"), 1, INT64_MAX).has_value();
  if (alive) note_renewal(sent);
  return alive;
} catch (const Error& error) {
  log_warning("{}; the lease of {} s was not renewed", error.what(), options_.lease_ttl.count());
  return true;
}

void EtcdStore::note_renewal(Clock::time_point sent) {
  const std::lock_guard lock(mutex_);
  renewed_ = sent;
}

Millis EtcdStore::lease_left() {
  const std::lock_guard lock(mutex_);
  if (lease_lost_) return Millis(0);
  const auto left = std::chrono::duration_cast<Millis>(renewed_ + options_.lease_ttl - Clock::now());
  return std::max(left, Millis(0));
}

void EtcdStore::check_lease() {
  const std::lock_guard lock(mutex_);
  if (lease_lost_)
    throw PeerError(
        "[store] the lease of {} s at etcd {} has ended and this process's keys are gone, so the others think it left; "
        "join again",
        options_.lease_ttl.count(), to_string(options_.server));
}

EtcdStore::Versioned EtcdStore::read(const std::string& key, Deadline deadline) {
  rules::check_key(key);
  const Json answer =
      gateway_->post("/v3/kv/range", {{"key", base64_encode(options_.prefix + key)}}, Repeat::harmless, deadline);
  const Json entries = array_field(answer, "kvs");
  if (entries.empty()) return {};
  return {bytes_field(entries[0], "value"), text_field(entries[0], "mod_revision")};
}

// An absent key has the revision 0, so this one comparison serves both cases.
bool EtcdStore::write_if_unchanged(const std::string& key, const Versioned& seen, std::string_view value) {
  check_lease();
  const std::string full = options_.prefix + key;
  const Json compare{
      {"key", base64_encode(full)}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", seen.revision}};
  const Json success{{"request_put", put_request(full, value, lease_)}};
  const Json body{{"compare", Json::array({compare})}, {"success", Json::array({success})}};
  const Json answer = gateway_->post("/v3/kv/txn", body, Repeat::harmful);
  return bool_field(answer, "succeeded");
}

void EtcdStore::set(const std::string& key, std::string_view value) {
  rules::check_key(key);
  rules::check_value(key, value);
  check_lease();
  gateway_->post("/v3/kv/put", put_request(options_.prefix + key, value, lease_), Repeat::harmless);
}

std::string EtcdStore::get(const std::string& key, Deadline deadline) {
  const auto since = Clock::now();
  for (Backoff backoff(Millis{5}, Millis{250});; backoff.pause(deadline)) {
    if (auto value = read(key, deadline).value) return *std::move(value);
    if (deadline.passed()) throw rules::not_set(key, since);
  }
}

std::optional<std::string> EtcdStore::try_get(const std::string& key) {
  return read(key, Deadline::never()).value;
}

int64_t EtcdStore::add(const std::string& key, int64_t amount) {
  for (;;) {  // each turn that fails means that another's add went through
    const Versioned seen = read(key, Deadline::never());
    const int64_t sum = rules::sum(key, seen.value, amount);
    if (write_if_unchanged(key, seen, std::to_string(sum))) return sum;
  }
}

std::string EtcdStore::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  rules::check_value(key, expected);
  rules::check_value(key, desired);
  for (;;) {
    const Versioned seen = read(key, Deadline::never());
    if (!rules::matches(seen.value, expected)) return seen.value.value_or("");
    if (write_if_unchanged(key, seen, desired)) return std::string(desired);
  }
}

bool EtcdStore::remove(const std::string& key) {
  rules::check_key(key);
  const Json answer =
      gateway_->post("/v3/kv/deleterange", {{"key", base64_encode(options_.prefix + key)}}, Repeat::harmful);
  return text_field(answer, "deleted") == "1";
}

std::map<std::string, std::string> EtcdStore::list(const std::string& prefix) {
  const Json answer = gateway_->post("/v3/kv/range", range_of(options_.prefix + prefix), Repeat::harmless);
  std::map<std::string, std::string> result;
  for (const Json& entry : array_field(answer, "kvs")) {
    const std::string key = bytes_field(entry, "key");
    if (!key.starts_with(options_.prefix))
      throw PeerError("[store] etcd at {} was asked for keys below {} and sent \"{}\"", to_string(options_.server),
                      options_.prefix, printable(key));
    result.emplace(key.substr(options_.prefix.size()), bytes_field(entry, "value"));
  }
  return result;
}

}  // namespace trireme::store
