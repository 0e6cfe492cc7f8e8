// Admission: judges the first message of a connection. No socket and no clock, so every case can be tested.
//
//   Gatekeeper gate(token, enrolment);
//   Verdict verdict = gate.judge(message, {.nonce = sent_in_challenge, .ip = "10.0.0.2"});
#pragma once

#include <map>
#include <optional>
#include <string>

#include "trireme/store/sealed.h"
#include "trireme/store/tcp_server.h"
#include "trireme/store/wire.h"

namespace trireme::store {

struct Visitor {
  std::string nonce;  // what the server's challenge held
  std::string ip;
};

struct Verdict {
  enum class Kind { admitted, enrolled, wrong_token, not_enrolled, nonsense };
  Kind kind = Kind::nonsense;
  wire::Message reply{};
  std::string name{};  // when admitted
  SessionKeys keys{};  // when admitted
};

/// Thread rule: one thread.
class Gatekeeper {
 public:
  Gatekeeper(Token token, std::optional<TcpStoreServer::Enrolment> enrolment);
  Verdict judge(const wire::Message& message, const Visitor& visitor);
  /// A named client has disconnected: if it had joined, its address may be enrolled again.
  void left(const std::string& name, const std::string& ip);

 private:
  Verdict judge_hello(const wire::Message& message, const Visitor& visitor) const;
  Verdict judge_enrol(const wire::Message& message, const Visitor& visitor);
  std::optional<std::string> reason_against(const std::string& ip) const;

  const Token token_;
  const std::optional<TcpStoreServer::Enrolment> enrolment_;
  std::map<std::string, int> joins_;  // by address
  int all_joins_ = 0;
};

}  // namespace trireme::store
