#include "trireme/store/etcd_gateway.h"

#include <httplib.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/core/backoff.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::store {
namespace {

using Json = nlohmann::json;

constexpr Millis kMinCall{200};  // even a call made at its deadline gets a fair chance

bool is_unsent(httplib::Error error) {
  return error == httplib::Error::Connection || error == httplib::Error::ConnectionTimeout;
}

std::string reason_in(const std::string& body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("message") && json["message"].is_string()) return json["message"];
  if (json.is_object() && json.contains("error") && json["error"].is_string()) return json["error"];
  return body.substr(0, 200);
}

}  // namespace

struct EtcdGateway::Answer {
  enum class Kind { good, unsent, unsure, refused, unknown };
  Kind kind = Kind::unsure;
  std::string text{};  // the body, or what went wrong
};

struct EtcdGateway::Client : httplib::Client {
  using httplib::Client::Client;
};

EtcdGateway::EtcdGateway(Endpoint server, Clock::duration patience)
    : server_(std::move(server)), patience_(patience), client_(std::make_unique<Client>(server_.host, server_.port)) {
  client_->set_keep_alive(true);
  client_->set_tcp_nodelay(true);
}

EtcdGateway::~EtcdGateway() = default;

// The body is collected by hand because etcd ends its refusals with HTTP trailers, over which httplib 0.11 stumbles: it
// reports a failed read although the answer was there.
EtcdGateway::Answer EtcdGateway::post_once(const std::string& path, const std::string& body, Deadline deadline) {
  Answer answer;
  int status = 0;
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.body = body;
  request.set_header("Content-Type", "application/json");
  request.response_handler = [&](const httplib::Response& response) { return (status = response.status, true); };
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    return (answer.text.append(data, size), true);
  };
  const std::lock_guard lock(mutex_);
  limit_time(deadline);
  const httplib::Result result = client_->send(request);
  if (result.error() == httplib::Error::Success || (status != 0 && status != 200)) return judged(status, answer.text);
  return {is_unsent(result.error()) ? Answer::Kind::unsent : Answer::Kind::unsure, httplib::to_string(result.error())};
}

EtcdGateway::Answer EtcdGateway::judged(int status, const std::string& body) {
  if (status == 200) return {Answer::Kind::good, body};
  if (status == 503 || status == 504)
    return {Answer::Kind::unsure, reason_in(body)};  // no leader yet, starting, ending
  return {status == 404 ? Answer::Kind::unknown : Answer::Kind::refused, reason_in(body)};
}

void EtcdGateway::limit_time(Deadline deadline) {
  const Millis limit = std::max(kMinCall, deadline.left());
  client_->set_connection_timeout(limit);
  client_->set_read_timeout(limit);
  client_->set_write_timeout(limit);
}

Json EtcdGateway::parsed(const std::string& path, const Answer& answer) const {
  switch (answer.kind) {
    case Answer::Kind::refused:
      throw UsageError("[store] etcd at {} refuses {}: {}", to_string(server_), path, printable(answer.text));
    case Answer::Kind::unknown:
      throw PeerError("[store] etcd at {} does not know what {} asks for: {}; has a lease ended, or is it before 3.4?",
                      to_string(server_), path, printable(answer.text));
    case Answer::Kind::good:
      break;
    default:
      throw PeerError(
          "[store] etcd at {} does not answer {}: {}; is it running, and does the address lead to it? try: etcdctl "
          "--endpoints {} endpoint health",
          to_string(server_), path, printable(answer.text), to_string(server_));
  }
  Json json = Json::parse(answer.text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw PeerError("[store] {} does not answer {} as etcd does; is it etcd 3.4 or newer?", to_string(server_), path);
  return json;
}

Json EtcdGateway::post(const std::string& path, const Json& body, Repeat repeat, Deadline deadline) {
  const std::string text = body.dump();
  const Deadline limit = earlier(deadline, Deadline::in(patience_));
  for (Backoff backoff(Millis{20}, Millis{500});; backoff.pause(limit)) {
    const Answer answer = post_once(path, text, limit);
    const bool again =
        answer.kind == Answer::Kind::unsent || (answer.kind == Answer::Kind::unsure && repeat == Repeat::harmless);
    if (!again || limit.passed()) return parsed(path, answer);
  }
}

}  // namespace trireme::store
