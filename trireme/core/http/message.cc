#include "trireme/core/http/message.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "trireme/core/text.h"

namespace trireme::http {

std::string_view Request::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

std::vector<std::string_view> Request::parameters(std::string_view name) const {
  std::vector<std::string_view> values;
  std::string_view rest = query;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name) values.push_back(pair.substr(std::min(equals, pair.size() - 1) + 1));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
  }
  return values;
}

Response error_response(const Problem& problem, std::string_view message) {
  constexpr int kUnavailable = 503;
  const nlohmann::json body{{"error", {{"code", problem.code}, {"message", printable(message)}}}};
  Response response{.status = problem.status, .body = body.dump() + "\n"};
  if (problem.status == kUnavailable) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string to_bytes(const Response& response, Ending ending) {
  std::string bytes = fmt::format("{}{} {}\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n",
                                  kAnswerStart, response.status, reason_phrase(response.status), http_date(ending.now),
                                  response.type, response.body.size(), ending.keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers) bytes += fmt::format("{}: {}\r\n", name, value);
  bytes += "\r\n";
  if (!ending.without_body) bytes += response.body;
  return bytes;
}

std::string http_date(std::time_t time) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

const char* reason_phrase(int status) {
  static constexpr std::pair<int, const char*> kPhrases[] = {
      {200, "OK"},
      {400, "Bad Request"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {411, "Length Required"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {431, "Request Header Fields Too Large"},
      {499, "Client Closed Request"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [number, phrase] : kPhrases)
    if (number == status) return phrase;
  return "Unknown";
}

}  // namespace trireme::http
