// The page's files, which CMake puts into the program (page/).
#pragma once

#include <string_view>

namespace trireme::launch::page {

extern const std::string_view kHtml;
extern const std::string_view kCss;
extern const std::string_view kJs;

}  // namespace trireme::launch::page
