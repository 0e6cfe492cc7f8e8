#include "trireme/launch/live/dashboard.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"
#include "trireme/launch/live/page_files.h"

namespace trireme::launch {
namespace {

using http::Request;
using http::Response;

constexpr http::Problem kPageProblems[] = {
    {401, "token_required", "other machines can reach the page, so it needs the job's token",
     "open the URL in dashboard.url"},
    {403, "wrong_host", "the Host header does not name this machine", "use 127.0.0.1"},
    {404, "not_found", "there is no such page", "open /"},
    {405, "method_not_allowed", "the page is read-only", "use GET"},
};

consteval const http::Problem& page_problem(std::string_view code) {
  return http::find_problem(kPageProblems, code);
}

constexpr int kMaxRank = 1 << 20;
constexpr size_t kMaxRanksAtOnce = 64;

http::ServerOptions server_options() {
  using std::chrono::seconds;
  return {.workers = 2,
          .max_connections = 64,
          .limits = {.header_bytes = 8u << 10, .headers = 50, .body_bytes = 0},
          .max_waiting = 32,
          .max_held_bytes = size_t{8} << 20,
          .read_timeout = seconds(10),
          .write_timeout = seconds(30),
          .idle_timeout = seconds(30)};
}

Response with_headers(Response response) {
  response.headers.insert(
      response.headers.end(),
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"},
       {"X-Content-Type-Options", "nosniff"},
       {"X-Frame-Options", "DENY"},
       {"Referrer-Policy", "no-referrer"},
       {"Cross-Origin-Resource-Policy", "same-origin"},
       {"Cache-Control", "no-store"}});
  return response;
}

Response file(const char* type, std::string_view body) {
  return {.type = fmt::format("{}; charset=utf-8", type), .body = std::string(body)};
}

std::optional<int> rank_in(std::string_view text) {
  const auto rank = parse_int(text, 0, kMaxRank);
  return rank ? std::optional(static_cast<int>(*rank)) : std::nullopt;
}

std::optional<int> rank_parameter(const Request& request) {
  const auto values = request.parameters("rank");
  return values.empty() ? std::nullopt : rank_in(values.front());
}

// ranks=0,1,5
std::vector<int> ranks_parameter(const Request& request) {
  std::vector<int> ranks;
  for (const std::string_view value : request.parameters("ranks"))
    for (const std::string& text : split(value, ','))
      if (const auto rank = rank_in(text); rank && ranks.size() < kMaxRanksAtOnce) ranks.push_back(*rank);
  return ranks;
}

std::string cookie(const Request& request, const std::string& name) {
  for (const std::string& pair : split(request.header("cookie"), ';'))
    if (const std::string_view trimmed = trim(pair); trimmed.starts_with(name + "="))
      return std::string(trimmed.substr(name.size() + 1));
  return "";
}

std::string shown_host(const std::string& host) {
  return host == "0.0.0.0" || host == "::" ? host_name() : host;
}

}  // namespace

// All four parts are numbers: 127.x.evil.example is a name that its owner can point at this machine.
bool is_loopback_host(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  const std::vector<std::string> parts = split(host, '.');
  const auto is_byte = [](const std::string& part) { return parse_int(part, 0, 255).has_value(); };
  return parts.size() == 4 && parts[0] == "127" && std::all_of(parts.begin(), parts.end(), is_byte);
}

Dashboard::Dashboard(const Options& options, PageSource& source)
    : options_(options),
      source_(source),
      token_(options.needs_token ? to_hex(random_bytes(Token::kSize)) : ""),
      session_(options.needs_token ? to_hex(random_bytes(Token::kSize)) : "") {
  UniqueFd listener = listen_tcp(options.address.host, options.address.port);
  port_ = port_of(local_address(listener.get()));  // before the server's threads ask for it
  server_ = std::make_unique<http::Server>(std::move(listener), server_options(),
                                           [this](Request& request) { return with_headers(answer(request)); });
}

std::string Dashboard::url(bool with_token) const {
  const std::string address = to_string(Endpoint{shown_host(options_.address.host), port()});
  return fmt::format("http://{}/{}", address, with_token && !token_.empty() ? "#token=" + token_ : "");
}

void Dashboard::drain(Deadline deadline) {
  server_->drain();
  server_->wait(deadline);
}

Response Dashboard::answer(const Request& request) {
  if (request.method != "GET" && request.method != "HEAD") {
    Response response = error_response(page_problem("method_not_allowed"), "only GET and HEAD");
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
  }
  if (!options_.needs_token && !under_own_name(request))
    return error_response(page_problem("wrong_host"), "use the address that the launcher has shown");
  return answer_page(request);
}

Response Dashboard::answer_page(const Request& request) {
  if (request.path == "/") return file("text/html", page::kHtml);
  if (request.path == "/app.css") return file("text/css", page::kCss);
  if (request.path == "/app.js") return file("text/javascript", page::kJs);
  if (!allowed(request)) {
    if (!warned_.exchange(true)) log_warning("the dashboard was asked without its token; such requests get nothing");
    Response refusal =
        error_response(page_problem("token_required"), "the token is in dashboard.url of the log folder");
    refusal.headers.emplace_back("WWW-Authenticate", "Bearer");
    return refusal;
  }
  return request.path == "/api/login" ? log_in(request) : answer_data(request);
}

Response Dashboard::answer_data(const Request& request) {
  const std::string& path = request.path;
  if (path == "/api/state") return {.body = source_.state()};
  if (path == "/api/curves") return {.body = source_.curves(rank_parameter(request))};
  if (path == "/api/timeline") return {.body = source_.timelines(ranks_parameter(request))};
  if (path == "/progress.json") return {.body = source_.progress()};
  if (path == "/metrics") return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = source_.metrics()};
  if (path == "/api/log") {
    const auto rank = rank_parameter(request);
    auto log = rank ? source_.log(*rank) : std::nullopt;
    if (log) return {.body = std::move(*log)};
  }
  return error_response(page_problem("not_found"), "there is no such page");
}

// Only with the token itself: a cookie does not make another one.
Response Dashboard::log_in(const Request& request) const {
  Response response{.body = "{}\n"};
  if (options_.needs_token && has_token(request))
    response.headers.emplace_back("Set-Cookie", fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000",
                                                            cookie_name(), session_));
  return response;
}

bool Dashboard::has_token(const Request& request) const {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = request.header("authorization");
  return given.starts_with(kScheme) && constant_time_equal(given.substr(kScheme.size()), token_);
}

bool Dashboard::allowed(const Request& request) const {
  if (!options_.needs_token) return true;
  return has_token(request) || constant_time_equal(cookie(request, cookie_name()), session_);
}

// Cookies do not tell ports apart, and a machine may run several jobs.
std::string Dashboard::cookie_name() const {
  return fmt::format("trireme_{}", port());
}

bool Dashboard::under_own_name(const Request& request) const {
  try {
    return is_loopback_host(parse_endpoint(request.header("host"), "Host", 80).host);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace trireme::launch
