// The web page of a running job: a few files that the program holds, and what they ask for. Nothing that a client sends
// changes anything.
//
//   Dashboard page({.address = {"127.0.0.1", 8080}}, source);
//
// On a loopback address everybody on this machine may look, but only under a name of this machine, so that a web site
// cannot make a browser ask (DNS rebinding). On other addresses all but the empty page needs the token, in
// `Authorization: Bearer TOKEN`; /api/login gives a browser a cookie for it. Paths are looked up in a table, so no
// request reaches a file. Connections, headers and time are bounded; a request has no body.
//
// Thread rule: the source is called from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/deadline.h"
#include "trireme/core/http/server.h"
#include "trireme/core/net.h"

namespace trireme::launch {

/// The contents of the page. Each method returns a whole body.
class PageSource {
 public:
  virtual ~PageSource() = default;
  virtual std::string state() = 0;
  /// Without a rank: each curve of the lowest rank that has reported it.
  virtual std::string curves(std::optional<int> rank) = 0;
  virtual std::string timelines(const std::vector<int>& ranks) = 0;
  /// Nothing when there is no such rank.
  virtual std::optional<std::string> log(int rank) = 0;
  virtual std::string metrics() = 0;
  virtual std::string progress() = 0;
};

class Dashboard {
 public:
  struct Options {
    Endpoint address;
    bool needs_token = false;
  };
  /// Throws SystemError when it cannot listen.
  Dashboard(const Options& options, PageSource& source);

  uint16_t port() const { return port_; }
  /// "http://127.0.0.1:8080/"; `with_token`: with the token behind it, for the user who started the job.
  std::string url(bool with_token) const;
  /// Takes no new connections and waits until what was asked is answered. The last call.
  void drain(Deadline deadline);

 private:
  http::Response answer(const http::Request& request);
  http::Response answer_page(const http::Request& request);
  http::Response answer_data(const http::Request& request);
  http::Response log_in(const http::Request& request) const;
  bool allowed(const http::Request& request) const;
  bool has_token(const http::Request& request) const;
  bool under_own_name(const http::Request& request) const;
  std::string cookie_name() const;

  const Options options_;
  PageSource& source_;
  const std::string token_;
  const std::string session_;  // the cookie's value
  uint16_t port_ = 0;
  std::atomic<bool> warned_ = false;
  std::unique_ptr<http::Server> server_;  // last: its threads use the others
};

/// Whether it is an address of this machine only.
bool is_loopback_host(const std::string& host);

}  // namespace trireme::launch
