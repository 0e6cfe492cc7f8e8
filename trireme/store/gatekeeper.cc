#include "trireme/store/gatekeeper.h"

#include <fmt/core.h>

#include "trireme/store/handshake.h"

namespace trireme::store {
namespace {

using wire::Type;

Verdict refuse(Verdict::Kind kind, std::string reason) {
  return {.kind = kind, .reply = {.type = Type::refuse, .parts = {std::move(reason)}}};
}

int joined(const std::map<std::string, int>& joins, const std::string& ip) {
  const auto found = joins.find(ip);
  return found == joins.end() ? 0 : found->second;
}

}  // namespace

Gatekeeper::Gatekeeper(Token token, std::optional<TcpStoreServer::Enrolment> enrolment)
    : token_(std::move(token)), enrolment_(std::move(enrolment)) {}

Verdict Gatekeeper::judge(const wire::Message& message, const Visitor& visitor) {
  if (message.type == Type::hello) return judge_hello(message, visitor);
  if (message.type == Type::enrol) return judge_enrol(message, visitor);
  return {};
}

void Gatekeeper::left(const std::string& name, const std::string& ip) {
  if (!enrolment_ || !enrolment_->has_joined(name)) return;
  const auto found = joins_.find(ip);
  if (found == joins_.end() || found->second == 0) return;
  --found->second;
  --all_joins_;
}

Verdict Gatekeeper::judge_hello(const wire::Message& message, const Visitor& visitor) const {
  const Greeting greeting{.server_nonce = visitor.nonce, .client_nonce = message.parts[0], .name = message.parts[1]};
  if (!constant_time_equal(message.parts[2], client_proof(token_, greeting)))
    return refuse(Verdict::Kind::wrong_token,
                  "the token is that of another job; use the same token file on every node, or none on all");
  return {.kind = Verdict::Kind::admitted,
          .reply = {.type = Type::welcome, .parts = {server_proof(token_, greeting)}},
          .name = greeting.name,
          .keys = session_keys(token_, greeting)};
}

std::optional<std::string> Gatekeeper::reason_against(const std::string& ip) const {
  if (!enrolment_) return "this job has a token file; put the same one on every node (TRIREME_TOKEN_FILE)";
  const auto& allowed = enrolment_->allowed_ips;
  const auto entry = allowed.find(ip);
  if (!allowed.empty() && entry == allowed.end())
    return fmt::format("address {} is not one of the job's; check --ips, or use a token file", ip);
  if (entry != allowed.end() && joined(joins_, ip) >= entry->second)
    return fmt::format("address {} has already joined {} of {} times; start the job again, or use a token file", ip,
                       joined(joins_, ip), entry->second);
  if (all_joins_ >= enrolment_->max_joins)
    return fmt::format("all {} places are taken; start the job again, or use a token file", enrolment_->max_joins);
  return std::nullopt;
}

Verdict Gatekeeper::judge_enrol(const wire::Message& message, const Visitor& visitor) {
  if (auto reason = reason_against(visitor.ip)) return refuse(Verdict::Kind::not_enrolled, *std::move(reason));
  const KeyAgreement agreement;
  const std::string secret = agreement.shared_secret(message.parts[0]);
  ++joins_[visitor.ip];
  ++all_joins_;
  return {.kind = Verdict::Kind::enrolled,
          .reply = {.type = Type::enrolled, .parts = {agreement.public_key(), seal(secret, token_.bytes())}}};
}

}  // namespace trireme::store
