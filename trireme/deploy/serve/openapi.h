// The description of the server's paths: for programs as OpenAPI 3.1, for people as a page.
#pragma once

#include <string>

namespace trireme::serve {

std::string openapi_json();
std::string openapi_html();

}  // namespace trireme::serve
