#include "trireme/deploy/serve/routes.h"

#include <vector>

#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/// A % without two hexadecimal digits stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0;
    decoded += escape ? static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return decoded;
}

bool fits(const std::vector<std::string>& wanted, const std::vector<std::string>& given, Match& match) {
  if (wanted.size() != given.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (given[i].empty() && !wanted[i].empty()) return false;
    if (wanted[i] == "{name}")
      match.model = percent_decoded(given[i]);
    else if (wanted[i] == "{version}")
      match.version = percent_decoded(given[i]);
    else if (wanted[i] != given[i])
      return false;
  }
  return true;
}

bool takes(const Route& route, std::string_view method) {
  return route.method == method || (route.method == "GET" && method == "HEAD");
}

}  // namespace

Match match_route(std::string_view method, std::string_view path) {
  const std::vector<std::string> parts = split(path, '/');
  Match none;
  for (const Route& route : kRoutes) {
    Match match{.route = &route};
    if (!fits(split(route.path, '/'), parts, match)) continue;
    if (takes(route, method)) return match;
    none.allowed = route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return none;
}

}  // namespace trireme::serve
